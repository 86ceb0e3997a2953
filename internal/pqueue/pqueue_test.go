package pqueue

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// entry is an item that knows its index.
type entry struct{ value, index int }

func newEntries() Queue[*entry] {
	return New(func(a, b *entry) bool { return a.value < b.value }, func(e *entry, index int) { e.index = index })
}

// TestAgainstSorted: whatever is added, changed and removed, the first item is the least, each item is at the index
// that it was told, and those that left were told -1.
func TestAgainstSorted(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		q := newEntries()
		var in []*entry
		for range 300 {
			at := r.IntN(len(in) + 1)
			switch op := r.IntN(5); {
			case op < 2 || at == len(in):
				e := &entry{value: r.IntN(50), index: -1}
				q.Push(e)
				in = append(in, e)
			case op == 2:
				in[at].value = r.IntN(50)
				q.Fix(in[at].index)
			case op == 3:
				e := in[at]
				if got := q.Remove(e.index); got != e || e.index != -1 {
					t.Fatalf("seed %d: removed %+v, want %+v at -1", seed, got, e)
				}
				in = slices.Delete(in, at, at+1)
			default:
				e := q.Pop()
				if e.index != -1 {
					t.Fatalf("seed %d: %+v has left", seed, e)
				}
				in = slices.DeleteFunc(in, func(o *entry) bool { return o == e })
				if len(in) > 0 && slices.MinFunc(in, func(a, b *entry) int { return cmp.Compare(a.value, b.value) }).value < e.value {
					t.Fatalf("seed %d: took out %d, which is not the least", seed, e.value)
				}
			}
			if q.Len() != len(in) {
				t.Fatalf("seed %d: %d items, want %d", seed, q.Len(), len(in))
			}
			for _, e := range in {
				if q.items[e.index] != e || q.before(e, q.First()) {
					t.Fatalf("seed %d: %+v isn't where it was told, or before the first", seed, e)
				}
			}
		}
	}
}

// TestNoAllocations: a queue that has grown adds and removes items of any size without allocating.
func TestNoAllocations(t *testing.T) {
	q := New(func(a, b [9]int) bool { return a[0] < b[0] }, nil)
	work := func() {
		for i := range 100 {
			q.Push([9]int{i * 7919 % 100})
		}
		for i := range 100 {
			if got := q.Pop(); got[0] != i {
				t.Fatalf("took out %d, want %d", got[0], i)
			}
		}
	}
	if n := testing.AllocsPerRun(10, work); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if q.items = q.items[:cap(q.items)]; slices.ContainsFunc(q.items, func(i [9]int) bool { return i != [9]int{} }) {
		t.Error("what has left is still held")
	}
}
