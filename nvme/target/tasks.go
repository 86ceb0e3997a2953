package target

import "sync"

// tasks are goroutines that can be waited for.
type tasks struct {
	mu     sync.Mutex
	closed bool
	all    sync.WaitGroup
}

// Go runs f in a goroutine. After wait has begun, it isn't waited for.
func (t *tasks) Go(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		go f()
		return
	}
	t.all.Go(f)
}

// wait waits for all.
func (t *tasks) wait() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.all.Wait()
}
