package ring

import (
	"fmt"
	"math"
)

// Train is a train that was read.
type Train struct {
	Bytes   []byte // in the ring: they belong to the writer again after Release
	Segment int    // bytes of each datagram except the last, which may be shorter
	Class   uint8
}

// Reader takes trains from a ring.
type Reader struct {
	memory
	next     uint64 // the next record
	written  uint64 // the tail, as last seen
	released uint64 // the head, before which the writer may overwrite
	sleeps   uint32
}

// NewReader reads from the ring in b, from the beginning.
func NewReader(b []byte) (*Reader, error) {
	m, err := newMemory(b)
	if err != nil {
		return nil, err
	}
	return &Reader{memory: m}, nil
}

// Next returns the next train; ok is false if there is none. The error is ErrCorrupt.
func (r *Reader) Next() (t Train, ok bool, err error) {
	for {
		if r.next == r.written {
			if r.written = r.tail.Load(); r.next == r.written {
				return t, false, nil
			}
			if held := r.next - r.released; r.written-r.next > Capacity-held { // also if it is behind next
				return t, false, fmt.Errorf("ring: the writer is at %d: %w", r.written, ErrCorrupt)
			}
		}
		h := *r.header(r.next)
		at, left := r.next&(Capacity-1), r.written-r.next
		if h.bytes == skip && Capacity-at <= left {
			r.next += Capacity - at
			continue
		}
		need := room(int(h.bytes))
		if h.bytes > MaxTrain || need > left || at+need > Capacity || h.class > math.MaxUint8 {
			return t, false, fmt.Errorf("ring: a train of %d bytes with class %d at %d: %w", h.bytes, h.class, r.next, ErrCorrupt)
		}
		r.next += need
		at += recordHeader
		end := at + uint64(h.bytes)
		return Train{Bytes: r.records[at:end:end], Segment: int(min(h.segment, h.bytes)), Class: uint8(h.class)}, true, nil
	}
}

// Release returns the memory of all trains that were taken to the writer.
func (r *Reader) Release() {
	if r.released != r.next {
		r.released = r.next
		r.head.Store(r.next)
	}
}

// Drained reports whether the memory of all trains was released. Any goroutine may call it.
func (r *Reader) Drained() bool { return r.head.Load() == r.tail.Load() }

// Empty reports whether there is nothing to take.
func (r *Reader) Empty() bool { return r.next == r.tail.Load() }

// Sleep asks the writer to wake the reader for what it puts from now on, or has put since the last call of Empty.
// Something may have arrived before this took effect: call Empty again.
func (r *Reader) Sleep() {
	if r.sleeps++; r.sleeps == 0 {
		r.sleeps = 1
	}
	r.asleep.Store(r.sleeps)
}

// Wake says that the reader needn't be woken.
func (r *Reader) Wake() {
	if r.asleep.Load() != 0 {
		r.asleep.Store(0)
	}
}
