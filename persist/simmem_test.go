package persist

import (
	"bytes"
	"math/rand/v2"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/internal/crash"
)

// simMemory is persistent memory for a volume that records which of it is durable. The volume stores to it as to any
// memory; changes are detected when it flushes, fences or syncs, and each of these is a point at which the power may
// fail.
type simMemory struct {
	mem    []byte
	seen   []byte // the content that the medium knows of
	m      *crash.Medium
	faults memFaults
	point  func() // called at each point

	held []lineRange // flushed, but held back by mapFirst
	data int64       // where blocks begin; maps come before
}

// memFaults are the mistakes that the tests must notice.
type memFaults struct {
	noFlush     bool // lines are not flushed
	noDataFlush bool // lines of data are not
	noFence     bool // flushes are not fenced
	oneFence    bool // only what follows a map's flush is fenced
	mapFirst    bool // the map is durable before the data
	noSync      bool // msync does nothing
}

// lineRange is a range of bytes, whole lines.
type lineRange struct{ off, n int64 }

const simLine = 64

func newSimMemory(mem, image []byte, data int64, faults memFaults) *simMemory {
	copy(mem, image)
	return &simMemory{
		mem: mem, seen: bytes.Clone(image), m: crash.Restore(bytes.Clone(image), entrySize),
		faults: faults, data: data, point: func() {},
	}
}

// fork returns the memory as another program finds it that continues, in mem, where this one was killed.
func (s *simMemory) fork(mem []byte) *simMemory {
	s.observe()
	copy(mem, s.mem)
	return &simMemory{
		mem: mem, seen: bytes.Clone(s.seen), m: s.m.Clone(), faults: s.faults, data: s.data, point: func() {},
	}
}

// observe tells the medium what was stored.
func (s *simMemory) observe() {
	const step = 512
	for off := 0; off < len(s.mem); off += step {
		if bytes.Equal(s.mem[off:off+step], s.seen[off:off+step]) {
			continue
		}
		for i := off; i < off+step; i += entrySize {
			if !bytes.Equal(s.mem[i:i+entrySize], s.seen[i:i+entrySize]) {
				s.m.WriteAt(s.mem[i:i+entrySize], int64(i))
			}
		}
		copy(s.seen[off:], s.mem[off:off+step])
	}
}

// crash returns what the memory may hold if the power fails now.
func (s *simMemory) crash(rnd *rand.Rand) []byte {
	s.observe()
	return s.m.Crash(rnd)
}

func (s *simMemory) offset(p unsafe.Pointer) int64 {
	return int64(uintptr(p) - uintptr(unsafe.Pointer(unsafe.SliceData(s.mem))))
}

// flusher flushes lines of the memory.
func (s *simMemory) flusher() *lineFlusher {
	return &lineFlusher{
		name: "simulated", line: simLine,
		flush: func(p unsafe.Pointer, n uintptr) {
			s.point()
			s.observe()
			s.flush(lineRange{s.offset(p), int64(n) * simLine})
			s.point()
		},
		stream: func(dst, src unsafe.Pointer, n uintptr) {
			for at := uintptr(0); at < n; at += simLine { // each may be durable before the next
				copy(unsafe.Slice((*byte)(unsafe.Add(dst, at)), simLine), unsafe.Slice((*byte)(unsafe.Add(src, at)), simLine))
				if at%1024 == 0 {
					s.point()
				}
			}
			s.observe()
			s.flush(lineRange{s.offset(dst), int64(n)})
			s.point()
		},
		fence: func() {
			s.point()
			s.observe()
			s.fence()
			s.point()
		},
	}
}

func (s *simMemory) flush(r lineRange) {
	data := r.off >= s.data
	switch {
	case s.faults.noFlush, s.faults.noDataFlush && data:
	case s.faults.mapFirst && data:
		s.held = append(s.held, r)
	default:
		s.m.WriteBack(r.off, r.n)
		if s.faults.oneFence && !data || s.faults.mapFirst {
			s.m.Fence() // below: the fence that follows is the one that is left out, or late
		}
	}
}

func (s *simMemory) fence() {
	if s.faults.noFence || s.faults.oneFence {
		return
	}
	s.m.Fence()
	if len(s.held) > 1 { // a write's data waits for the next write's map
		for _, r := range s.held[:len(s.held)-1] {
			s.m.WriteBack(r.off, r.n)
		}
		s.held = s.held[len(s.held)-1:]
		s.m.Fence()
	}
}

// sync is msync: pages may reach the disk before it is called, and all have when it returns.
func (s *simMemory) sync(b []byte) error {
	s.point()
	s.observe()
	r := lineRange{s.offset(unsafe.Pointer(unsafe.SliceData(b))), int64(len(b))}
	if s.faults.noSync {
		return nil
	}
	if s.faults.mapFirst && r.off >= s.data {
		s.held = append(s.held, r)
		return nil
	}
	s.m.WriteBack(r.off, r.n)
	s.point() // what is stored during a sync may be covered or not
	s.m.Fence()
	if s.faults.mapFirst {
		s.point()
		for _, r := range s.held {
			s.m.WriteBack(r.off, r.n)
		}
		s.held = s.held[:0]
		s.m.Fence()
	}
	s.point()
	return nil
}
