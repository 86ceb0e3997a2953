package blockdev

import (
	"slices"
	"sync"
)

// SizeWatchers is the set of functions that a Resizer calls with a volume's new sizes. The zero value is empty.
type SizeWatchers struct {
	mu  sync.Mutex
	all []*func(newSize int64)
}

// Add implements Resizer.OnResize.
func (w *SizeWatchers) Add(f func(newSize int64)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, &f)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all = slices.DeleteFunc(w.all, func(x *func(int64)) bool { return x == &f })
	}
}

// Tell calls them all.
func (w *SizeWatchers) Tell(newSize int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.all {
		(*f)(newSize)
	}
}
