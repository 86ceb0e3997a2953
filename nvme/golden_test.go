package nvme

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// golden reads a page captured between two Linux kernels; testdata/README.md gives its origin.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// capsule is one exchange of testdata/capsules.txt.
type capsule struct {
	origin string
	cmd    *Command
	cqe    *Completion // nil where none was captured
}

func capsules(t testing.TB) []capsule {
	t.Helper()
	f, err := os.Open("testdata/capsules.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []capsule
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if strings.HasPrefix(sc.Text(), "#") {
			continue
		}
		w := strings.Fields(sc.Text())
		c := capsule{origin: w[0], cmd: CommandAt(unhex(t, w[1]))}
		if w[2] != "-" {
			c.cqe = CompletionAt(unhex(t, w[2]))
		}
		all = append(all, c)
	}
	return all
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// page is the interface of every page type.
type page interface {
	AppendTo([]byte) []byte
	Parse([]byte) error
}

// checkGolden parses the sample, appends it and compares with what Linux sent.
func checkGolden(t *testing.T, name string, p page) {
	t.Helper()
	want := golden(t, name)
	if err := p.Parse(want); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	got := p.AppendTo([]byte("prefix"))[len("prefix"):]
	if !bytes.Equal(got, want) {
		t.Errorf("%s: parse and append differ from the capture:\n%s", name, firstDifference(got, want))
	}
	for _, n := range []int{0, 1, len(want) - 1} {
		if n < len(want) && strings.HasPrefix(name, "identify") {
			if err := p.Parse(want[:n]); err == nil {
				t.Errorf("%s: %d bytes parsed without an error", name, n)
			}
		}
	}
}

func firstDifference(a, b []byte) string {
	if len(a) != len(b) {
		return "lengths differ"
	}
	for i := range a {
		if a[i] != b[i] {
			from, to := max(0, i-8), min(len(a), i+8)
			return "from byte " + hexNumber(from) + ": got " + hex.EncodeToString(a[from:to]) + ", want " + hex.EncodeToString(b[from:to])
		}
	}
	return ""
}

func hexNumber(i int) string { return hex.EncodeToString([]byte{byte(i >> 8), byte(i)}) }

// fuzzPage checks parse → append → parse on arbitrary bytes.
func fuzzPage[P interface {
	*T
	page
}, T any](tf *testing.F, seeds ...string) {
	f := fuzzing.New(tf)
	for _, s := range seeds {
		f.Add(golden(f, s))
	}
	var once, twice []byte // kept, since many executions may share a process
	f.Fuzz(func(t *testing.T, b []byte) {
		p := P(new(T))
		if p.Parse(b) != nil {
			return
		}
		once = p.AppendTo(once[:0])
		q := P(new(T))
		if err := q.Parse(once); err != nil {
			t.Fatalf("own output doesn't parse: %v", err)
		}
		if twice = q.AppendTo(twice[:0]); !bytes.Equal(once, twice) {
			t.Fatalf("not stable: %s", firstDifference(once, twice))
		}
	})
}
