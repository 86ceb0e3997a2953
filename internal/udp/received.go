package udp

import "iter"

// Count is how many datagrams were received in one piece; an empty datagram is one.
func (r *Received) Count() int {
	if r.SegmentSize <= 0 || len(r.Buf) <= r.SegmentSize {
		return 1
	}
	return (len(r.Buf) + r.SegmentSize - 1) / r.SegmentSize
}

// Datagrams yields each datagram in turn. The slices can't grow into each other.
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

// ECN is the congestion field of the IP header: 0 not capable, 1 ECT(1), 2 ECT(0), 3 CE.
func (r *Received) ECN() uint8 { return r.TrafficClass & 3 }
