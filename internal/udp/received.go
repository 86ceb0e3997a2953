package udp

import "iter"

// Count returns how many datagrams were received in one piece; an empty datagram counts as one.
func (r *Received) Count() int {
	if r.SegmentSize <= 0 || len(r.Buf) <= r.SegmentSize {
		return 1
	}
	return (len(r.Buf) + r.SegmentSize - 1) / r.SegmentSize
}

// Datagrams yields each datagram in turn. The slices have no spare capacity, so appending can't
// overwrite the next one.
func (r *Received) Datagrams() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		buf, size := r.Buf, r.SegmentSize
		for size > 0 && len(buf) > size {
			if !yield(buf[:size:size]) {
				return
			}
			buf = buf[size:]
		}
		yield(buf[:len(buf):len(buf)])
	}
}

// ECN returns the congestion field of the IP header: 0 not capable, 1 ECT(1), 2 ECT(0), 3 CE.
func (r *Received) ECN() uint8 { return r.TrafficClass & 3 }
