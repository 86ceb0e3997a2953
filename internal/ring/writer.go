package ring

import "github.com/nvme-anywhere/nvmeof/internal/prefetch"

// Writer puts trains into a ring.
type Writer struct {
	memory
	next  uint64 // where the next record goes
	end   uint64 // the end of the record that was begun
	freed uint64 // the head, as last seen
}

// NewWriter writes to the ring in b, to which nobody has written yet.
func NewWriter(b []byte) (*Writer, error) {
	m, err := newMemory(b)
	if err != nil {
		return nil, err
	}
	return &Writer{memory: m}, nil
}

// Put copies a train of n bytes, gathered from parts, to the ring, where the reader sees it at once. Its datagrams have
// segment bytes each. It returns false if there is no room for it.
func (w *Writer) Put(parts [][]byte, n, segment int, class uint8) bool {
	to := w.Begin(n, segment, class)
	if to == nil {
		return false
	}
	gather(to, parts)
	w.End()
	return true
}

// Begin returns n bytes of the ring, to which the caller writes a train whose datagrams have segment bytes each, or nil
// if there is no room. The reader sees the train after End; without End, the next one that is begun takes its place.
func (w *Writer) Begin(n, segment int, class uint8) []byte {
	if n > MaxTrain {
		return nil
	}
	need, start := room(n), w.next
	if left := Capacity - start&(Capacity-1); left < need {
		start += left
	}
	if !w.fits(start + need) {
		return nil
	}
	if start != w.next {
		w.header(w.next).bytes = skip
	}
	*w.header(start) = header{bytes: uint32(n), segment: uint32(segment), class: uint32(class)}
	at := start&(Capacity-1) + recordHeader
	w.end = start + need
	return w.records[at : at+uint64(n) : at+uint64(n)]
}

// End makes what was written since Begin visible to the reader.
func (w *Writer) End() {
	w.next = w.end
	w.tail.Store(w.next)
}

// long is the length in bytes from which copying a part takes long enough to prefetch the next one's destination.
const long = 1 << 10

// gather copies parts to their place in a record, whose cache lines the reader's processor had last.
func gather(to []byte, parts [][]byte) {
	for _, p := range parts {
		if n := min(len(p), len(to)); n >= long {
			prefetch.ForWrite(to[n:])
		}
		to = to[copy(to, p):]
	}
}

// fits reports whether records may reach up to end. The position that the reader has written is used only if it is
// possible.
func (w *Writer) fits(end uint64) bool {
	if end-w.freed <= Capacity {
		return true
	}
	if head := w.head.Load(); head-w.freed <= w.next-w.freed {
		w.freed = head
	}
	return end-w.freed <= Capacity
}

// Asleep returns the number of the reader's sleep, if it wants to be woken for what was put, or 0 while it is awake.
func (w *Writer) Asleep() uint32 { return w.asleep.Load() }
