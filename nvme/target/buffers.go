package target

import (
	"slices"
	"sync"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Buffers is memory that a transport takes the data of commands from, as volumes know it that
// want to (blockdev.Registrar).
type Buffers struct {
	t      *Target
	chunks [][]byte
	known  map[blockdev.Registrar][]func() // to the volumes; the functions have them forget it
}

// bufferList is all Buffers of a target, and the volumes that want to know of them.
type bufferList struct {
	mu      sync.Mutex
	all     []*Buffers
	volumes map[blockdev.Registrar]int // with how many namespaces they are
}

// NewBuffers is for a transport that begins to serve t.
func (t *Target) NewBuffers() *Buffers {
	b := &Buffers{t: t, known: map[blockdev.Registrar][]func(){}}
	t.buffers.mu.Lock()
	t.buffers.all = append(t.buffers.all, b)
	t.buffers.mu.Unlock()
	return b
}

// Add tells the volumes of more memory. It doesn't wait for them.
func (b *Buffers) Add(chunk []byte) {
	l := &b.t.buffers
	l.mu.Lock()
	defer l.mu.Unlock()
	b.chunks = append(b.chunks, chunk)
	for v := range l.volumes {
		b.known[v] = append(b.known[v], v.Register(chunk))
	}
}

// Close has the volumes forget the memory, which may be unmapped then. Nothing is in flight.
func (b *Buffers) Close() {
	l := &b.t.buffers
	l.mu.Lock()
	l.all = slices.DeleteFunc(l.all, func(x *Buffers) bool { return x == b })
	var forget []func()
	for _, of := range b.known {
		forget = append(forget, of...)
	}
	clear(b.known)
	l.mu.Unlock()
	for _, f := range forget {
		f()
	}
}

// add tells a volume that becomes a namespace of all memory there is and will be.
func (l *bufferList) add(volume blockdev.Volume) {
	v, ok := volume.(blockdev.Registrar)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.volumes == nil {
		l.volumes = map[blockdev.Registrar]int{}
	}
	if l.volumes[v]++; l.volumes[v] > 1 {
		return
	}
	for _, b := range l.all {
		for _, c := range b.chunks {
			b.known[v] = append(b.known[v], v.Register(c))
		}
	}
}

// remove has a volume forget it all when it is no namespace any more, and waits for that. Nothing of it is in
// flight.
func (l *bufferList) remove(volume blockdev.Volume) {
	v, ok := volume.(blockdev.Registrar)
	if !ok {
		return
	}
	l.mu.Lock()
	var forget []func()
	if l.volumes[v]--; l.volumes[v] == 0 {
		delete(l.volumes, v)
		for _, b := range l.all {
			forget = append(forget, b.known[v]...)
			delete(b.known, v)
		}
	}
	l.mu.Unlock()
	for _, f := range forget {
		f()
	}
}
