package ring

import "github.com/nvme-anywhere/nvmeof/internal/prefetch"

// Writer puts trains into a ring.
type Writer struct {
	memory
	next  uint64 // where the next record goes
	end   uint64 // of the one that was begun
	freed uint64 // the head, as last seen
}

// NewWriter writes to the ring in b, in which nobody has written yet.
func NewWriter(b []byte) (*Writer, error) {
	m, err := newMemory(b)
	if err != nil {
		return nil, err
	}
	return &Writer{memory: m}, nil
}

// Put copies a train of n bytes, gathered from parts, to the ring, where the reader sees it at once. Its
// datagrams have segment bytes each. It returns false where there is no room for it.
func (w *Writer) Put(parts [][]byte, n, segment int, class uint8) bool {
	to := w.Begin(n, segment, class)
	if to == nil {
		return false
	}
	gather(to, parts)
	w.End()
	return true
}

// Begin returns n bytes of the ring in which a train is to be written, whose datagrams have segment bytes each; nil where
// there is no room. The reader sees it after End; without that what is begun next takes its place.
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

// End makes what was written since Begin the reader's.
func (w *Writer) End() {
	w.next = w.end
	w.tail.Store(w.next)
}

// long is from how many bytes on the copy of a part lasts until the next one's place is fetched.
const long = 1 << 10

// gather copies parts to what is theirs in a record, whose lines the reader's processor had last.
func gather(to []byte, parts [][]byte) {
	for _, p := range parts {
		if n := min(len(p), len(to)); n >= long {
			prefetch.ForWrite(to[n:])
		}
		to = to[copy(to, p):]
	}
}

// fits says whether records may reach up to end. What the reader says of its position is believed where it
// can be.
func (w *Writer) fits(end uint64) bool {
	if end-w.freed <= Capacity {
		return true
	}
	if head := w.head.Load(); head-w.freed <= w.next-w.freed {
		w.freed = head
	}
	return end-w.freed <= Capacity
}

// Asleep says which sleep of the reader it is that it wants to be woken from for what was put; 0 where it is awake.
func (w *Writer) Asleep() uint32 { return w.asleep.Load() }
