package soon

import (
	"sync"
	"time"
)

// Stopwatch measures time during which the program runs.
type Stopwatch struct {
	mu      sync.Mutex // guards the rest
	ran     time.Duration
	last    time.Time
	timer   *time.Timer
	stopped bool
}

const (
	// tick is how often a stopwatch looks at the clock, and most is the most that counts of the time between two looks.
	tick = 10 * time.Millisecond
	most = 200 * time.Millisecond
)

// Start returns a running Stopwatch, which runs until Stop.
func Start() *Stopwatch {
	w := &Stopwatch{last: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(tick, w.look)
	return w
}

func (w *Stopwatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.count()
		w.timer.Reset(tick)
	}
}

// count is called with w.mu held.
func (w *Stopwatch) count() {
	now := time.Now()
	w.ran += min(now.Sub(w.last), most)
	w.last = now
}

// Elapsed returns what w has measured until now, or until Stop.
func (w *Stopwatch) Elapsed() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.count()
	}
	return w.ran
}

// Stop stops w.
func (w *Stopwatch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.count()
	}
	w.stopped = true
	w.timer.Stop()
}
