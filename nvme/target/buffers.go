package target

import (
	"slices"
	"sync"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Buffers is memory that a transport takes the data of commands from, as volumes know it that
// want to (blockdev.Registrar).
type Buffers struct {
	t       *Target
	chunks  [][]byte
	release []func()
}

// bufferList is all Buffers of a target, and the volumes that want to know of them.
type bufferList struct {
	mu      sync.Mutex
	all     []*Buffers
	volumes []blockdev.Registrar
}

// NewBuffers is for a transport that begins to serve t.
func (t *Target) NewBuffers() *Buffers {
	b := &Buffers{t: t}
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
	for _, v := range l.volumes {
		b.release = append(b.release, v.Register(chunk))
	}
}

// Close has the volumes forget the memory, which may be unmapped then. Nothing is in flight.
func (b *Buffers) Close() {
	l := &b.t.buffers
	l.mu.Lock()
	l.all = slices.DeleteFunc(l.all, func(x *Buffers) bool { return x == b })
	release := b.release
	b.release = nil
	l.mu.Unlock()
	for _, f := range release {
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
	l.volumes = append(l.volumes, v)
	for _, b := range l.all {
		for _, c := range b.chunks {
			b.release = append(b.release, v.Register(c))
		}
	}
}

// remove tells a volume no more.
func (l *bufferList) remove(volume blockdev.Volume) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.volumes, func(v blockdev.Registrar) bool { return v == volume }); i >= 0 {
		l.volumes = slices.Delete(l.volumes, i, i+1)
	}
}
