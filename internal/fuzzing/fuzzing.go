package fuzzing

import (
	"iter"
	"reflect"
	"testing"
)

// F is a testing.F whose target can be run in a campaign.
type F struct {
	*testing.F
	seeds [][]any
}

// New wraps f. Seeds must be added to the F that it returns.
func New(f *testing.F) *F { return &F{F: f} }

// Add adds a seed, as testing.F.Add does.
func (f *F) Add(args ...any) {
	f.F.Add(args...)
	f.seeds = append(f.seeds, args)
}

// Fuzz is like testing.F.Fuzz: fn takes a *testing.T and values of the seeds' types. In a campaign many executions
// share the T and the memory of []byte arguments, which fn must not keep.
func (f *F) Fuzz(fn any) {
	f.Helper()
	c := campaignOf(f)
	if c == nil {
		f.F.Fuzz(fn)
		return
	}
	call := caller(fn)
	c.run(f, reflect.TypeOf(fn), func(t *testing.T, inputs iter.Seq[[]any]) {
		for args := range inputs {
			call(t, args)
		}
	})
}

// caller returns a function that calls fn, with as few conversions as possible.
func caller(fn any) func(*testing.T, []any) {
	switch fn := fn.(type) {
	case func(*testing.T, []byte):
		return func(t *testing.T, args []any) { fn(t, args[0].([]byte)) }
	case func(*testing.T, string):
		return func(t *testing.T, args []any) { fn(t, args[0].(string)) }
	}
	v := reflect.ValueOf(fn)
	return func(t *testing.T, args []any) {
		in := []reflect.Value{reflect.ValueOf(t)}
		for _, a := range args {
			in = append(in, reflect.ValueOf(a))
		}
		v.Call(in)
	}
}

// Sequence in the first argument of a world's input says that the second is many inputs.
const Sequence = 0x80

// World makes a state machine of the kind that how (without Sequence) asks for, feeds it each of inputs, checks
// invariants after each one, ends it and checks that nothing is left. It stops early when the state machine can take no
// more. It must not keep an input.
type World func(t *testing.T, how uint8, inputs iter.Seq[[]byte])

// Worlds fuzzes a world. Seeds are a uint8, how, and a []byte: an input, or a sequence of them.
func (f *F) Worlds(world World) {
	f.Helper()
	one := func(t *testing.T, how uint8, data []byte) {
		world(t, how&^Sequence, split(how, data))
	}
	c := campaignOf(f)
	if c == nil {
		f.F.Fuzz(one)
		return
	}
	c.runWorlds(f, reflect.TypeOf(one), world)
}

// split yields the inputs of an entry.
func split(how uint8, data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if how&Sequence == 0 {
			yield(data)
			return
		}
		for len(data) >= 2 {
			n := min(int(data[0])|int(data[1])<<8, len(data)-2)
			if !yield(data[2 : 2+n]) {
				return
			}
			data = data[2+n:]
		}
	}
}
