package fuzzing

import (
	"bytes"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// defective makes the targets here fail on inputs that they otherwise accept.
const defective = "NVMEOF_FUZZ_DEFECTIVE"

// FuzzSample fails, if defective, on inputs that begin with a capital letter.
func FuzzSample(tf *testing.F) {
	f := New(tf)
	f.Add("seed", true, 7)
	f.Fuzz(func(t *testing.T, s string, _ bool, _ int) {
		if s != "" && s[0] >= 'A' && s[0] <= 'Z' && os.Getenv(defective) != "" {
			t.Error("a capital letter")
		}
	})
}

// FuzzWorld panics in a goroutine of its own, if defective, on a long input after a short one.
func FuzzWorld(tf *testing.F) {
	f := New(tf)
	f.Add(uint8(3), []byte("seed"))
	f.Worlds(func(t *testing.T, how uint8, inputs iter.Seq[[]byte]) {
		if how >= Sequence {
			t.Errorf("world of kind %#x", how)
		}
		short := false
		for input := range inputs {
			if short && len(input) > 8 && os.Getenv(defective) != "" {
				ended := make(chan struct{})
				go func() { panic("a long input") }()
				<-ended
			}
			short = len(input) < 3
		}
	})
}

// sample runs a target of these in a process of its own.
func sample(t *testing.T, dir, target string, env ...string) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "-test.run", "^"+target+"$")
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// A campaign makes as many executions as asked for, and leaves nothing behind if nothing fails.
func TestCampaign(t *testing.T) {
	for _, target := range []string{"FuzzSample", "FuzzWorld"} {
		dir := t.TempDir()
		out, err := sample(t, dir, target, "NVMEOF_FUZZ_EXECUTIONS=25000")
		if err != nil || !strings.Contains(out, "campaign: "+target+": 25000 executions") {
			t.Errorf("%v\n%s", err, out)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "testdata", "fuzz", "*")); len(left) != 0 {
			t.Errorf("%s left %v", target, left)
		}
	}
}

// What fails is kept, and fails again in go test.
func TestFindings(t *testing.T) {
	for _, target := range []string{"FuzzSample", "FuzzWorld"} {
		dir := t.TempDir()
		if out, err := sample(t, dir, target, defective+"=1"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if out, err := sample(t, dir, target, defective+"=1", "NVMEOF_FUZZ_EXECUTIONS=10000000"); err == nil {
			t.Fatalf("no finding\n%s", out)
		}
		if kept, _ := filepath.Glob(filepath.Join(dir, "testdata", "fuzz", target, "*")); len(kept) != 1 {
			t.Fatalf("%s kept %v", target, kept)
		}
		if out, err := sample(t, dir, target, defective+"=1"); err == nil {
			t.Errorf("%s doesn't fail again\n%s", target, out)
		}
		if out, err := sample(t, dir, target); err != nil {
			t.Errorf("%s fails without its defect: %v\n%s", target, err, out)
		}
	}
}

// Entries are in Go's format, and come back.
func TestEntries(t *testing.T) {
	args := []any{[]byte("a\x00\xff\""), "ü`\n", true, uint8(200), uint8('a'), uint16(65535), uint32(7), uint64(1 << 63), -3, int64(-1 << 63)}
	var types []reflect.Type
	for _, a := range args {
		types = append(types, reflect.TypeOf(a))
	}
	b := appendEntry(nil, args)
	if got, ok := parseEntry(b, types); !ok || !reflect.DeepEqual(got, args) {
		t.Errorf("%s\ngives %v", b, got)
	}
	const golden = "go test fuzz v1\nbyte('\\x00')\n[]byte(\"0\\x01\")\n" // as Go 1.26 writes it
	got, ok := parseEntry([]byte(golden), []reflect.Type{reflect.TypeFor[uint8](), reflect.TypeFor[[]byte]()})
	if want := []any{uint8(0), []byte("0\x01")}; !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, ok := parseEntry([]byte(golden), []reflect.Type{reflect.TypeFor[[]byte]()}); ok {
		t.Error("an entry of another type was taken")
	}
}

func TestQuoted(t *testing.T) {
	var all []byte
	for c := range 256 {
		all = append(all, byte(c))
	}
	literal := `"` + string(appendQuoted(nil, all)) + `"`
	if got, err := strconv.Unquote(literal); err != nil || got != string(all) {
		t.Errorf("%s is %q, %v", literal, got, err)
	}
}

func TestSequences(t *testing.T) {
	want := [][]byte{{}, {1}, bytes.Repeat([]byte{2}, maxInput)}
	var b []byte
	for _, input := range want {
		b = appendInput(b, input)
	}
	if got := slices.Collect(split(Sequence|1, b)); !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("%d inputs", len(got))
	}
	if got := slices.Collect(split(1, b)); len(got) != 1 || !bytes.Equal(got[0], b) {
		t.Errorf("%d inputs", len(got))
	}
}

// A journal is a valid entry after each addition, even if it had to grow or held a longer world before.
func TestJournal(t *testing.T) {
	t.Chdir(t.TempDir())
	j, err := newJournal("FuzzX")
	if err != nil {
		t.Fatal(err)
	}
	types := []reflect.Type{reflect.TypeFor[uint8](), reflect.TypeFor[[]byte]()}
	check := func(how uint8, want [][]byte) {
		t.Helper()
		all, err := readCorpus(entries("FuzzX"), types)
		if err != nil || len(all) != 1 {
			t.Fatalf("%d entries, %v", len(all), err)
		}
		if all[0][0] != how|Sequence || !slices.EqualFunc(slices.Collect(split(how|Sequence, all[0][1].([]byte))), want, bytes.Equal) {
			t.Fatalf("kind %#x, %d bytes instead of those of %d inputs", all[0][0], len(all[0][1].([]byte)), len(want))
		}
	}
	for how, n := range []int{20, 3} {
		if err := j.begin(uint8(how)); err != nil {
			t.Fatal(err)
		}
		var fed [][]byte
		for i := range n {
			check(uint8(how), fed)
			input := bytes.Repeat([]byte{'"', byte(i)}, 1000*i)
			if err := j.add(input); err != nil {
				t.Fatal(err)
			}
			fed = append(fed, input)
		}
		check(uint8(how), fed)
		if how == 1 {
			size := j.end + len(journalTail)
			if err := j.keep(); err != nil {
				t.Fatal(err)
			}
			check(1, fed)
			if s, err := os.Stat(j.path()); err != nil || s.Size() != int64(size) {
				t.Errorf("%v, %v", s, err)
			}
		}
	}
}

// Inputs differ from one another, repeat with the seed, and stay within their bound.
func TestMutations(t *testing.T) {
	seen := map[string]bool{}
	var runs [2][]byte
	for i := range runs {
		m := mutator{rand: rand.New(rand.NewPCG(1, 0)), corpus: [][]any{{uint8(1), []byte("abcdefgh")}, {uint8(2), make([]byte, maxInput)}}}
		for range 1000 {
			input := m.world()
			if len(input) > maxInput {
				t.Fatalf("%d bytes", len(input))
			}
			runs[i] = append(runs[i], input...)
			seen[string(input)] = true
		}
	}
	if !bytes.Equal(runs[0], runs[1]) {
		t.Error("a seed doesn't repeat")
	}
	if len(seen) < 800 {
		t.Errorf("%d different inputs of 1000", len(seen))
	}
}
