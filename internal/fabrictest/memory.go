package fabrictest

import "testing"

// Memory hands out buffers, as a host's transport does.
type Memory interface {
	Alloc(n int) ([]byte, error)
	Free(b []byte)
}

// MemoryAgain tests that memory that was freed can be had again. m has a few MiB.
func MemoryAgain(t *testing.T, m Memory) {
	t.Helper()
	all := func() (got [][]byte) {
		for {
			b, err := m.Alloc(1 << 20)
			if err != nil {
				return got
			}
			got = append(got, b)
		}
	}
	first := all()
	for _, b := range first {
		m.Free(b)
	}
	if again := all(); len(first) == 0 || len(again) != len(first) {
		t.Errorf("%d MiB, and when they were freed %d", len(first), len(again))
	}
}
