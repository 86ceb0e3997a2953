package simnet

import (
	"bytes"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Recv waits for datagrams, as udp.Conn says.
func (e *Endpoint) Recv(rx []udp.Received) (int, error) {
	for {
		n, err := e.TryRecv(rx)
		if n > 0 || err != nil || len(rx) == 0 {
			return n, err
		}
		e.wait()
	}
}

// wait returns when there may be something to receive, or when the endpoint is closed.
func (e *Endpoint) wait() {
	var due <-chan time.Time
	if d, ok := e.untilNext(); ok {
		d = max(d, time.Nanosecond) // 0 crashes the race detector, as in package roce
		if e.timer == nil {
			e.timer = time.NewTimer(d)
		} else {
			e.timer.Reset(d)
		}
		defer e.timer.Stop()
		due = e.timer.C
	}
	select {
	case <-due:
	case <-e.wake:
	case <-e.closed:
	}
}

// TryRecv returns what has arrived by now, as udp.Conn says.
func (e *Endpoint) TryRecv(rx []udp.Received) (int, error) {
	e.spoil()
	if e.isClosed() {
		return 0, e.closedError("recv")
	}
	e.mu.Lock()
	arrived, dropped := e.settle(time.Now())
	n := 0
	for n < min(len(rx), udp.RecvBatch) && e.unread < len(e.buffer) {
		rx[n] = e.take()
		n++
	}
	if e.unread == len(e.buffer) {
		clear(e.buffer)
		e.buffer, e.unread = e.buffer[:0], 0
	}
	e.mu.Unlock()
	e.network.countArrived(arrived, dropped)
	return n, nil
}

// spoil overwrites what the last call returned, which must no longer be in use.
func (e *Endpoint) spoil() {
	for _, b := range e.lent {
		for len(b) > 0 {
			b = b[copy(b, spoiled):]
		}
	}
	clear(e.lent)
	e.lent = e.lent[:0]
}

// spoiled is what spoil writes.
var spoiled = bytes.Repeat([]byte{0xdb}, 4096)

// untilNext returns the time until the next datagram in flight arrives.
func (e *Endpoint) untilNext() (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.coming.Len() == 0 {
		return 0, false
	}
	return time.Until(e.coming.First().due), true
}

// settle moves what is due by now into the buffer, in the order of arrival, and returns how many found room and how
// many didn't. As it is called before each read, and nothing leaves the buffer between reads, the result is the same as
// if it had happened at the times of arrival.
func (e *Endpoint) settle(now time.Time) (arrived, dropped int) {
	for e.coming.Len() > 0 && !e.coming.First().due.After(now) {
		a := e.coming.Pop()
		if e.waiting+len(a.payload) > e.config.RecvBuffer {
			dropped++
			continue
		}
		e.waiting += len(a.payload)
		e.buffer = append(e.buffer, a)
		arrived++
	}
	return arrived, dropped
}

// take reads one datagram, with those behind it that can be coalesced.
func (e *Endpoint) take() udp.Received {
	first := &e.buffer[e.unread]
	size := len(first.payload)
	parts := e.parts[:0]
	parts = append(parts, first.payload)
	e.unread++
	if e.config.Coalesce && size > 0 {
		for total := size; e.unread < len(e.buffer) && len(parts) < udp.MaxTrainSegments; {
			next := &e.buffer[e.unread]
			n := len(next.payload)
			if total += n; next.src != first.src || next.class != first.class ||
				n == 0 || n > size || total > udp.MaxTrainBytes {
				break
			}
			parts = append(parts, next.payload)
			e.unread++
			if n < size {
				break
			}
		}
	}
	buf := bytes.Join(parts, nil)
	clear(parts)
	e.parts = parts
	e.waiting -= len(buf)
	e.lent = append(e.lent, buf)
	return udp.Received{
		Buf: buf, SegmentSize: size, Src: first.src, Dst: e.addr.Addr(), TrafficClass: first.class,
	}
}

func (n *Network) countArrived(arrived, dropped int) {
	if arrived == 0 && dropped == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Delivered += arrived
	n.stats.BufferFull += dropped
}
