package fuzzing

import (
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
	"time"
)

const (
	parserBatch = 10000    // executions that share a T, and whatever they leave for its cleanup
	maxInputs   = 1 << 10  // inputs of a world, a power of two
	maxInput    = 16 << 10 // bytes
)

// campaign runs many executions of one target, without guidance by coverage.
type campaign struct {
	left   int
	until  time.Time // zero for no end
	dir    string    // directory with what Go's fuzzer found; empty for none
	seed   uint64
	made   int
	rand   *rand.Rand
	corpus [][]any
	m      mutator
	asked  chan os.Signal // requests to stop
}

// campaignOf reads the environment: NVMEOF_FUZZ_EXECUTIONS is the number of executions, NVMEOF_FUZZ_TIME the time
// limit, NVMEOF_FUZZ_CORPUS the directory where Go's fuzzer keeps what it finds (as -test.fuzzcachedir), and
// NVMEOF_FUZZ_SEED the seed from which inputs are made. An interrupt ends the campaign early. Outside a campaign,
// campaignOf returns nil.
func campaignOf(f *F) *campaign {
	f.Helper()
	text := os.Getenv("NVMEOF_FUZZ_EXECUTIONS")
	if text == "" {
		return nil
	}
	c := &campaign{dir: os.Getenv("NVMEOF_FUZZ_CORPUS"), seed: rand.Uint64(), asked: make(chan os.Signal, 1)}
	var err error
	if c.left, err = strconv.Atoi(text); err != nil || c.left < 0 {
		f.Fatalf("NVMEOF_FUZZ_EXECUTIONS=%q is not a number of executions", text)
	}
	if text := os.Getenv("NVMEOF_FUZZ_TIME"); text != "" {
		limit, err := time.ParseDuration(text)
		if err != nil {
			f.Fatalf("NVMEOF_FUZZ_TIME: %v", err)
		}
		c.until = time.Now().Add(limit)
	}
	if text := os.Getenv("NVMEOF_FUZZ_SEED"); text != "" {
		if c.seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			f.Fatalf("NVMEOF_FUZZ_SEED: %v", err)
		}
	}
	c.rand = rand.New(rand.NewPCG(c.seed, 0))
	return c
}

// begin collects the corpus of a target whose function has type fn, and runs body as a subtest of the target.
func (c *campaign) begin(f *F, fn reflect.Type, body func(t *testing.T)) {
	f.Helper()
	var types []reflect.Type
	for i := 1; i < fn.NumIn(); i++ {
		types = append(types, fn.In(i))
	}
	c.corpus = f.seeds
	dirs := []string{entries(f.Name())}
	if c.dir != "" {
		dirs = append(dirs, filepath.Join(c.dir, f.Name()))
	}
	for _, dir := range dirs {
		found, err := readCorpus(dir, types)
		if err != nil {
			f.Fatal(err)
		}
		c.corpus = append(c.corpus, found...)
	}
	if len(c.corpus) == 0 {
		f.Fatal("a campaign needs a seed")
	}
	c.m = mutator{rand: c.rand, corpus: c.corpus}
	signal.Notify(c.asked, os.Interrupt)
	defer signal.Stop(c.asked)
	once := false
	f.F.Fuzz(reflect.MakeFunc(fn, func(in []reflect.Value) []reflect.Value {
		if t := in[0].Interface().(*testing.T); !once { // called for each entry of the tree
			once = true
			body(t)
			// tests/campaign reads this.
			fmt.Fprintf(os.Stdout, "campaign: %s: %d executions from seed %d and %d entries\n", f.Name(), c.made, c.seed, len(c.corpus))
		}
		return nil
	}).Interface())
}

// over reports whether the campaign has ended.
func (c *campaign) over() bool {
	return c.left == 0 || len(c.asked) > 0 || (!c.until.IsZero() && time.Now().After(c.until))
}

// run runs batches of executions until the campaign is over. An input that fails is kept.
func (c *campaign) run(f *F, fn reflect.Type, body func(*testing.T, iter.Seq[[]any])) {
	f.Helper()
	c.begin(f, fn, func(t *testing.T) {
		for ok := true; ok && !c.over(); {
			ok = t.Run("", func(t *testing.T) { c.batch(t, f.Name(), body) })
		}
	})
}

// batch runs executions that share t.
func (c *campaign) batch(t *testing.T, target string, body func(*testing.T, iter.Seq[[]any])) {
	var args []any // not nil while they are being executed
	defer func() {
		if args == nil {
			return // failed or panicked before or after
		}
		path, err := keep(target, args)
		fmt.Fprintf(os.Stdout, "campaign: %s: Failing input written to %s (%v), from seed %d\n", target, path, err, c.seed)
	}()
	body(t, func(yield func([]any) bool) {
		for range min(parserBatch, c.left) {
			if c.made&0x3ff == 0 && c.over() {
				return
			}
			args = c.m.next()
			if !yield(args) || t.Failed() {
				return
			}
			args = nil
			c.left--
			c.made++
		}
	})
}

// runWorlds runs worlds until the campaign is over. The inputs of one that fails are left in the tree.
func (c *campaign) runWorlds(f *F, fn reflect.Type, world World) {
	f.Helper()
	c.begin(f, fn, func(t *testing.T) {
		c.m.corpus = inputsOf(c.corpus)
		j, err := newJournal(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		worlds := 0
		for ok := true; ok && !c.over(); worlds++ {
			how := c.m.pick()[0].(uint8)
			ok = t.Run("", func(t *testing.T) {
				if err := j.begin(how); err != nil {
					t.Fatal(err)
				}
				world(t, how, c.inputs(t, j))
			})
		}
		if t.Failed() {
			fmt.Fprintf(os.Stdout, "campaign: %s: Failing inputs left in %s (%v), from seed %d\n", f.Name(), j.path(), j.keep(), c.seed)
			return
		}
		if err := j.remove(); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(os.Stdout, "campaign: %s: %d worlds\n", f.Name(), worlds)
	})
}

// inputs yields the inputs of one world, and records them in j. Many worlds are short, so that bugs that a long life
// would hide are found as well.
func (c *campaign) inputs(t *testing.T, j *journal) iter.Seq[[]byte] {
	n := 1 + c.rand.IntN(1<<c.rand.IntN(bits.Len(maxInputs)))
	return func(yield func([]byte) bool) {
		for range min(n, c.left) {
			input := c.m.world()
			if err := j.add(input); err != nil {
				t.Error(err)
				return
			}
			c.left--
			c.made++
			if !yield(input) || t.Failed() {
				return
			}
		}
	}
}

// inputsOf splits sequences into their inputs.
func inputsOf(corpus [][]any) (all [][]any) {
	for _, e := range corpus {
		how := e[0].(uint8)
		for input := range split(how, e[1].([]byte)) {
			all = append(all, []any{how &^ Sequence, input})
		}
	}
	return all
}
