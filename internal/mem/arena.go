package mem

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	unit     = 512 // bytes; the smallest buffer and the granularity of the bookkeeping
	pageSize = 4096

	// DefaultMax is the most that an Arena maps if Config.Max is 0, in bytes.
	DefaultMax = 256 << 20
	// ChunkSize is the least by which an Arena grows, in bytes, unless Config.Largest is more. A larger buffer gets a
	// chunk of its own, rounded up to a power of two.
	ChunkSize = 4 << 20
	// MinMax is the smallest valid Config.Max, in bytes.
	MinMax = 64 << 10

	maxMax = 1 << 38 // the most that a chunk's bookkeeping can count
)

// ErrExhausted means that a buffer didn't fit within Config.Max.
var ErrExhausted = errors.New("memory exhausted")

// Config says how large an Arena may grow and what to call for each new chunk.
type Config struct {
	// Max is the most that the Arena maps, in bytes; 0 means DefaultMax. A value below ChunkSize is rounded up to a
	// power of two. Memory that isn't needed isn't mapped.
	Max int64
	// Largest is the size, in bytes, of the largest buffers that can always be allocated once enough has been freed.
	// Buffers of up to ChunkSize always can.
	Largest int
	// OnGrow is called with each new chunk before the first buffer of it is handed out, one call at a time, with
	// indexes 0, 1, 2 … An error discards the chunk, whose index is reused, and makes Alloc return nil. OnGrow must
	// not call the Arena.
	OnGrow func(index int, chunk []byte) error
	// OnFail is called with the error each time that a buffer can't be had because a chunk that Max allows can't, from
	// the system or because of OnGrow. It must not call the Arena. It may be nil.
	OnFail func(err error)
}

// Validate reports the first field with an invalid value.
func (c *Config) Validate() error {
	if c.Max != 0 && (c.Max < MinMax || c.Max > maxMax) {
		return fmt.Errorf("mem: at most %d bytes: want 0 (%d) or %d to %d", c.Max, DefaultMax, MinMax, int64(maxMax))
	}
	return nil
}

// Arena hands out buffers.
type Arena struct {
	cfg    Config
	caches [cachedOrders]cache
	table  atomic.Pointer[table] // searched by ChunkOf

	grow   sync.Mutex // serializes growing
	mu     sync.Mutex // guards the chunks' bookkeeping, mapped and closed
	chunks []*chunk   // by index; nil once unmapped
	mapped int64
	closed bool
	err    error // why it couldn't grow the last time

	exhausted atomic.Uint64 // Allocs that returned nil
}

// New returns an Arena, which maps nothing yet.
func New(cfg Config) (*Arena, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	switch {
	case cfg.Max == 0:
		cfg.Max = DefaultMax
	case cfg.Max < ChunkSize:
		cfg.Max = 1 << bits.Len64(uint64(cfg.Max-1))
	}
	cfg.Largest = max(cfg.Largest, ChunkSize)
	a := &Arena{cfg: cfg}
	a.table.Store(new(table))
	for i := range a.caches {
		a.caches[i].limit = cacheLimit(i)
	}
	return a, nil
}

// Alloc returns a buffer of n bytes, or nil if n isn't positive, memory is exhausted, or the Arena is closed. Its
// contents are undefined and its capacity is n. For up to ChunkSize, or Config.Largest (or Config.Max, if that is
// less), it succeeds whenever enough has been freed; a longer buffer needs a chunk that was made for one, and is best
// allocated early and kept.
func (a *Arena) Alloc(n int) []byte { return a.alloc(n, hugePages) }

// AllocSparse is Alloc for a buffer much of which may never be used: only pages that are written to, which are of the
// normal size, take memory. If Max leaves no room for a chunk of such pages, the buffer comes from another chunk.
func (a *Arena) AllocSparse(n int) []byte { return a.alloc(n, smallPages) }

// alloc hands out a block with the given kind of pages, or with the other kind if need be. Only blocks in huge pages
// are cached.
func (a *Arena) alloc(n int, kind pages) []byte {
	if n <= 0 {
		return a.none()
	}
	if int64(n) > a.cfg.Max {
		a.failed(fmt.Errorf("%w: %d bytes wanted, at most %d may be mapped", ErrExhausted, n, a.cfg.Max))
		return a.none()
	}
	units := unitsFor(n)
	if order, ok := cachedOrder(units); ok && kind == hugePages {
		if b, ok := a.caches[order].pop(); ok {
			return a.handOut(b, units, n)
		}
	}
	b, ok := a.take(units, kind)
	var err error
	if !ok {
		// The missing memory may be in the caches, in pieces that can be joined.
		a.drain()
		if b, ok, err = a.takeGrowing(units, kind); !ok {
			b, ok = a.take(units, !kind)
		}
	}
	if !ok {
		if err != nil {
			a.failed(err)
		}
		return a.none()
	}
	return a.handOut(b, units, n)
}

func (a *Arena) none() []byte {
	a.exhausted.Add(1)
	return nil
}

// handOut marks a block as in use. Until then no other goroutine knows of it.
func (a *Arena) handOut(b block, units uint32, n int) []byte {
	b.chunk.units[b.unit].state.Store(stateUsed | units)
	off := int(b.unit) * unit
	return b.chunk.mem[off : off+n : off+n]
}

// Free takes back a buffer that Alloc returned, identified by its first byte; its length doesn't matter. A nil buffer
// is fine.
func (a *Arena) Free(buf []byte) {
	if cap(buf) == 0 {
		return
	}
	c, off, ok := a.table.Load().find(buf[:0])
	if !ok || off%unit != 0 {
		a.misuse("foreign buffer freed")
		return
	}
	b := block{c, uint32(off / unit)}
	head := &c.units[b.unit].state
	s := head.Load()
	// Of several goroutines that free the same buffer at once, only one wins the exchange.
	if s&stateMask != stateUsed || !head.CompareAndSwap(s, stateIdle|s&^stateMask) {
		a.misuse("buffer freed that isn't in use")
		return
	}
	units := s &^ stateMask
	if invariants {
		poison(c.mem[off : off+int(units)*unit])
	}
	if order, ok := cachedOrder(units); ok && c.pages == hugePages && a.caches[order].push(b) {
		return
	}
	a.mu.Lock()
	a.release(b, units)
	a.mu.Unlock()
}

// release returns a block to its chunk. Arena.mu is held.
func (a *Arena) release(b block, units uint32) {
	b.chunk.release(b.unit, units)
	if a.closed && b.chunk.used == 0 {
		a.unmap(b.chunk)
	}
}

func (a *Arena) misuse(what string) {
	if invariants {
		panic("mem: " + what)
	}
}

// take looks for room in the existing chunks of a kind, oldest first, so that the youngest stay empty.
func (a *Arena) take(units uint32, kind pages) (block, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return block{}, false
	}
	for _, c := range a.chunks {
		if c == nil || c.pages != kind {
			continue
		}
		if u, ok := c.take(units); ok {
			return block{c, u}, true
		}
	}
	return block{}, false
}

// takeGrowing takes from a new chunk, or from one that another goroutine has just mapped. Other goroutines take from it
// too, perhaps all of it: then it maps one more. The error is why it can't; there is none if the Arena is closed.
func (a *Arena) takeGrowing(units uint32, kind pages) (b block, ok bool, err error) {
	a.grow.Lock()
	defer a.grow.Unlock()
	for {
		if b, ok := a.take(units, kind); ok {
			return b, true, nil
		}
		if added, err := a.addChunk(units, kind); !added {
			return block{}, false, err
		}
	}
}

// addChunk maps a chunk that has room for units. It returns false if it can't, with the error, or the Arena is closed.
func (a *Arena) addChunk(units uint32, kind pages) (bool, error) {
	size, index, err := a.nextChunk(units)
	if err != nil {
		return false, err
	}
	c, err := a.newChunk(size, index, kind)
	if err != nil {
		return false, err
	}
	return a.publish(c), nil
}

// failed notes why a buffer can't be had, and tells of it unless Max doesn't allow it.
func (a *Arena) failed(err error) {
	a.mu.Lock()
	a.err = err
	a.mu.Unlock()
	if a.cfg.OnFail != nil && !errors.Is(err, ErrExhausted) {
		a.cfg.OnFail(err)
	}
}

// nextChunk returns the size of the next chunk: a power of two that has room for units, and for Largest if Max allows
// it.
func (a *Arena) nextChunk(units uint32) (size int64, index int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	need, least := int64(unit)<<bits.Len32(units-1), int64(1)<<bits.Len64(uint64(a.cfg.Largest-1))
	left := a.cfg.Max - a.mapped
	if left < need {
		return 0, 0, fmt.Errorf("%w: %d bytes wanted, %d of at most %d mapped", ErrExhausted, need, a.mapped, a.cfg.Max)
	}
	size = max(need, least)
	for size > left {
		size /= 2
	}
	return size, len(a.chunks), nil
}

// newChunk maps a chunk and calls OnGrow.
func (a *Arena) newChunk(size int64, index int, kind pages) (*chunk, error) {
	mem, err := mapMemory(int(size), kind)
	if err != nil {
		return nil, err
	}
	if a.cfg.OnGrow != nil {
		if err := a.cfg.OnGrow(index, mem); err != nil {
			unmapMemory(mem)
			return nil, fmt.Errorf("mem: chunk %d of %d bytes: %w", index, size, err)
		}
	}
	return newChunk(mem, index, kind), nil
}

// publish adds a chunk to the Arena, unless that was closed meanwhile.
func (a *Arena) publish(c *chunk) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		unmapMemory(c.mem)
		return false
	}
	a.chunks = append(a.chunks, c)
	a.mapped += int64(len(c.mem))
	a.table.Store(a.table.Load().with(c))
	return true
}

// unmap removes a chunk of a closed Arena. Arena.mu is held.
func (a *Arena) unmap(c *chunk) {
	a.chunks[c.index] = nil
	a.mapped -= int64(len(c.mem))
	a.table.Store(a.table.Load().without(c))
	unmapMemory(c.mem)
}

// drain returns the cached blocks to their chunks.
func (a *Arena) drain() {
	for i := range a.caches {
		a.caches[i].drain(func(b block) {
			a.mu.Lock()
			a.release(b, 1<<i)
			a.mu.Unlock()
		})
	}
}

// ChunkOf returns which chunk buf lies in and where: the index passed to OnGrow, and the offset in bytes. It takes no
// lock.
func (a *Arena) ChunkOf(buf []byte) (index, offset int, ok bool) {
	c, off, ok := a.table.Load().find(buf)
	if !ok {
		return 0, 0, false
	}
	return c.index, off, true
}

// Err returns why there was no memory the last time that Alloc returned nil, unless the Arena was closed. It wraps
// ErrExhausted, or the system's or OnGrow's error.
func (a *Arena) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Close unmaps every chunk that has nothing in use, and the others when their last buffer is freed. From then on Alloc
// returns nil.
func (a *Arena) Close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	for i := range a.caches {
		a.caches[i].close()
	}
	a.drain()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.chunks {
		if c != nil && c.used == 0 {
			a.unmap(c)
		}
	}
}
