package target

import (
	"slices"
	"sync"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Buffers is what a transport and the volumes know of each other's memory. Volumes that want to know are told which
// memory the transport uses for the data of commands (blockdev.Registrar); the transport is told when memory that
// volumes gave it as views and loans (blockdev.Memory) is no longer valid.
type Buffers struct {
	t      *Target
	chunks [][]byte
	known  map[blockdev.Registrar][]func() // to the volumes; the functions make them forget it
	gone   func(*blockdev.Region)          // makes the transport forget; may be nil
}

// bufferList holds all Buffers of a target, and the volumes that they are about.
type bufferList struct {
	turn sync.Mutex // one volume comes or goes at a time; locked before the locks of transports, and mu

	mu      sync.Mutex
	all     []*Buffers
	volumes map[blockdev.Volume]int // how many namespaces each one has
}

// NewBuffers returns the Buffers of a transport that begins to serve t. If gone isn't nil, it is called with each
// region of a volume that is no longer used as a namespace: no command uses it then, or will. The error is ErrClosed.
func (t *Target) NewBuffers(gone func(*blockdev.Region)) (*Buffers, error) {
	t.mu.Lock()
	closed := t.closed
	t.mu.Unlock()
	if closed { // it would refuse every host
		return nil, ErrClosed
	}
	b := &Buffers{t: t, known: map[blockdev.Registrar][]func(){}, gone: gone}
	t.buffers.mu.Lock()
	t.buffers.all = append(t.buffers.all, b)
	t.buffers.mu.Unlock()
	return b, nil
}

// Add tells the volumes about more memory. It doesn't wait for them.
func (b *Buffers) Add(chunk []byte) {
	l := &b.t.buffers
	l.mu.Lock()
	defer l.mu.Unlock()
	b.chunks = append(b.chunks, chunk)
	for volume := range l.volumes {
		if v, ok := volume.(blockdev.Registrar); ok {
			b.known[v] = append(b.known[v], v.Register(chunk))
		}
	}
}

// Close makes the volumes forget the memory, which may be unmapped afterwards. Nothing may be in flight.
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

// add tells a volume that becomes a namespace about all memory there is; Add tells it about more.
func (l *bufferList) add(volume blockdev.Volume) {
	registrar, _ := volume.(blockdev.Registrar)
	if _, shows := volume.(blockdev.Memory); !shows && registrar == nil {
		return
	}
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.volumes == nil {
		l.volumes = map[blockdev.Volume]int{}
	}
	if l.volumes[volume]++; l.volumes[volume] > 1 || registrar == nil {
		return
	}
	for _, b := range l.all {
		for _, c := range b.chunks {
			b.known[registrar] = append(b.known[registrar], registrar.Register(c))
		}
	}
}

// remove makes a volume and the transports forget each other's memory if no namespace uses the volume any more, and
// waits for that. Nothing of it is in flight.
func (l *bufferList) remove(volume blockdev.Volume) {
	registrar, _ := volume.(blockdev.Registrar)
	memory, _ := volume.(blockdev.Memory)
	if registrar == nil && memory == nil {
		return
	}
	l.turn.Lock()
	forget, left := l.leave(volume, registrar)
	if memory != nil {
		for _, b := range left {
			b.forget(memory.Regions())
		}
	}
	l.turn.Unlock()
	for _, f := range forget {
		f()
	}
}

// leave counts one namespace of volume less. After the last one it returns the functions that make the volume forget,
// and the Buffers that may know its regions.
func (l *bufferList) leave(volume blockdev.Volume, registrar blockdev.Registrar) (forget []func(), left []*Buffers) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.volumes[volume]--; l.volumes[volume] > 0 {
		return nil, nil
	}
	delete(l.volumes, volume)
	for _, b := range l.all {
		forget = append(forget, b.known[registrar]...)
		delete(b.known, registrar)
	}
	return forget, slices.Clone(l.all)
}

// forget makes the transport forget the regions of a volume.
func (b *Buffers) forget(regions []*blockdev.Region) {
	if b.gone == nil {
		return
	}
	for _, r := range regions {
		b.gone(r)
	}
}
