package wrap

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Freezer is a volume that can be made to hang: while it is frozen, submitted requests wait.
type Freezer struct {
	layer
	hold   sync.Mutex
	frozen bool
	held   []*call // in order
	timer  *time.Timer
	over   bool // it is about to be closed, and doesn't freeze any more
}

// NewFreezer returns a volume that passes everything on until Freeze is called.
func NewFreezer(v blockdev.Volume) *Freezer {
	f := &Freezer{}
	f.layer = newLayer(v, "can freeze", func(*call) {}, func(c *call) { f.leave(c, c.down.Err) })
	return f
}

// Submit passes r on, now or after Thaw.
func (f *Freezer) Submit(r *blockdev.Request) {
	c := f.enter(r)
	if c == nil {
		return
	}
	f.hold.Lock()
	if f.frozen {
		f.held = append(f.held, c)
		f.hold.Unlock()
		return
	}
	f.hold.Unlock()
	f.below.Submit(&c.down)
}

// Freeze makes requests wait from now on. Those that the volume below already has are answered.
func (f *Freezer) Freeze() {
	f.hold.Lock()
	f.frozen = !f.over
	f.hold.Unlock()
}

// Thaw passes on the waiting requests, in order, and all later ones.
func (f *Freezer) Thaw() {
	f.hold.Lock()
	held := f.held
	f.held, f.frozen = nil, false
	f.hold.Unlock()
	for _, c := range held {
		f.below.Submit(&c.down)
	}
}

// Frozen reports whether requests wait.
func (f *Freezer) Frozen() bool {
	f.hold.Lock()
	defer f.hold.Unlock()
	return f.frozen
}

// Schedule freezes the volume after the given time, for the given length.
func (f *Freezer) Schedule(after, length time.Duration) {
	f.hold.Lock()
	defer f.hold.Unlock()
	f.timer = time.AfterFunc(after, func() {
		f.hold.Lock()
		defer f.hold.Unlock()
		if f.over {
			return
		}
		f.frozen = true
		f.timer = time.AfterFunc(length, f.Thaw)
	})
}

// Close thaws the volume, for good, and closes it.
func (f *Freezer) Close() error {
	f.release()
	return f.layer.Close()
}

// release thaws the volume, for good.
func (f *Freezer) release() {
	f.hold.Lock()
	f.over = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.hold.Unlock()
	f.Thaw()
}

// parseFreeze parses "manual" or "10s+5s".
func parseFreeze(s string) (after, length time.Duration, err error) {
	if s == "manual" {
		return 0, 0, nil
	}
	first, second, ok := strings.Cut(s, "+")
	if ok {
		if after, err = time.ParseDuration(first); err == nil {
			length, err = time.ParseDuration(second)
		}
	}
	if !ok || err != nil || after < 0 || length <= 0 {
		return 0, 0, errors.New("freeze " + s + ": write when and how long, as 10s+5s, or manual")
	}
	return after, length, nil
}
