package wrap

import (
	"sync"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// layer is what all wrappers share: the volume below, and a pool of copied requests.
type layer struct {
	below blockdev.Volume
	mode  string // the mode of the volume below, and the wrapper's
	life  *blockdev.Lifetime

	mu   sync.Mutex
	free []*call
	made func(*call) // prepares a new call
}

// call is a request on its way through a wrapper.
type call struct {
	down blockdev.Request  // to the volume below
	up   *blockdev.Request // from above
	data any               // the wrapper's own
}

// newLayer returns a layer. back is called when the volume below has answered a call.
func newLayer(below blockdev.Volume, mode string, made, back func(*call)) layer {
	return layer{below: below, mode: below.Info().Mode + "; " + mode, life: blockdev.NewLifetime(), made: func(c *call) {
		c.down.Complete = func(*blockdev.Request) { back(c) }
		made(c)
	}}
}

// Info returns the Info of the volume below, with the wrapper added to Mode. A wrapper lends nothing.
func (l *layer) Info() blockdev.Info {
	i := l.below.Info()
	i.Mode, i.LoanUnit = l.mode, 0
	return i
}

// enter accepts a request; if the volume is closed it answers the request, and returns nil.
func (l *layer) enter(r *blockdev.Request) *call {
	if !l.life.Enter() {
		i := l.below.Info()
		r.End(i.Gone(r.Op, r.Offset))
		return nil
	}
	l.mu.Lock()
	var c *call
	if n := len(l.free); n > 0 {
		c = l.free[n-1]
		l.free = l.free[:n-1]
	}
	l.mu.Unlock()
	if c == nil {
		c = &call{}
		l.made(c)
	}
	c.up = r
	d := &c.down
	d.Op, d.FUA, d.MayUnmap, d.Offset, d.Length, d.Bufs, d.Err = r.Op, r.FUA, r.MayUnmap, r.Offset, r.Length, r.Bufs, nil
	d.Unwanted = r.Unwanted
	return c
}

// leave answers the request of a call.
func (l *layer) leave(c *call, err error) {
	r := c.up
	c.up, c.down.Bufs, c.down.Unwanted = nil, nil, nil
	l.mu.Lock()
	l.free = append(l.free, c)
	l.mu.Unlock()
	l.life.Leave()
	r.End(err)
}

// Close waits for submitted requests, and closes the volume below. Freezers below are thawed first, since what they
// hold was submitted here.
func (l *layer) Close() error {
	for _, f := range Find[*Freezer](l.below) {
		f.release()
	}
	if !l.life.Close() {
		i := l.below.Info()
		return i.Closed("close")
	}
	return l.below.Close()
}

// OnResize passes the call on to the volume below, if its size can change.
func (l *layer) OnResize(f func(int64)) (stop func()) {
	if v, ok := l.below.(blockdev.Resizer); ok {
		return v.OnResize(f)
	}
	return func() {}
}

// Refresh checks whether the size has changed.
func (l *layer) Refresh() error {
	if v, ok := l.below.(blockdev.Resizer); ok {
		return v.Refresh()
	}
	return nil
}

// Register registers the memory with the volume below, if that is a Registrar.
func (l *layer) Register(mem []byte) (unregister func()) {
	if v, ok := l.below.(blockdev.Registrar); ok {
		return v.Register(mem)
	}
	return func() {}
}

// inner returns the volume below.
func (l *layer) inner() blockdev.Volume { return l.below }
