package simnet

import (
	"bytes"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/pqueue"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Endpoint is a udp.Conn of the Network.
type Endpoint struct {
	network *Network
	addr    netip.AddrPort
	config  Config
	closed  chan struct{}
	wake    chan struct{} // something is in flight that the receiver hasn't seen

	mu       sync.Mutex
	coming   pqueue.Queue[arrival]
	buffer   []arrival // arrived, in order; those from unread on wait for Recv
	unread   int
	waiting  int // bytes in buffer from unread on
	segments bool
	refusing map[netip.AddrPort]bool // routes that can't segment, and whether they have refused

	// What follows belongs to the receiving goroutine.
	timer *time.Timer
	lent  [][]byte // what the last Recv returned
	parts [][]byte // for take
}

var _ udp.Conn = (*Endpoint)(nil)

func newEndpoint(n *Network, addr netip.AddrPort, config Config) *Endpoint {
	return &Endpoint{
		network: n, addr: addr, config: config, segments: !config.NoSegmentation, coming: newArrivals(),
		closed: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// LocalAddr returns the address from Listen.
func (e *Endpoint) LocalAddr() netip.AddrPort { return e.addr }

// MTU returns Config.MTU.
func (e *Endpoint) MTU() int { return e.config.MTU }

// RecvBuffer returns Config.RecvBuffer.
func (e *Endpoint) RecvBuffer() int { return e.config.RecvBuffer }

// Segmentation reports whether trains of several datagrams are accepted.
func (e *Endpoint) Segmentation() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.segments
}

// Segments reports whether trains of several datagrams are accepted for dst.
func (e *Endpoint) Segments(dst netip.AddrPort) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.segments && !e.refusing[dst]
}

// RefuseSegmentationTo is RefuseSegmentation for one destination, as when its route leads into a tunnel.
func (e *Endpoint) RefuseSegmentationTo(dst netip.AddrPort) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refusing = map[netip.AddrPort]bool{dst: false}
}

// RefuseSegmentation makes the next train of several datagrams fail with udp.ErrSegmentation,
// as when a route changes to a device that can't segment.
func (e *Endpoint) RefuseSegmentation() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.config.NoSegmentation = true
}

// Close ends the endpoint: a blocked Recv returns, and datagrams in flight are lost.
func (e *Endpoint) Close() error {
	n := e.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.endpoints[e.addr] != e {
		return e.closedError("close")
	}
	delete(n.endpoints, e.addr)
	close(e.closed)
	return nil
}

func (e *Endpoint) closedError(op string) error {
	return &udp.OpError{Op: op, Addr: e.addr, Kind: udp.ErrClosed}
}

func (e *Endpoint) isClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}

// Send splits trains into datagrams and sends them.
func (e *Endpoint) Send(trains []udp.Train) (int, error) {
	for i := range trains {
		if e.isClosed() {
			return i, e.closedError("send")
		}
		if err := e.check(&trains[i]); err != nil {
			return i, err
		}
		e.sendTrain(&trains[i])
	}
	return len(trains), nil
}

// check refuses what the real Conn refuses.
func (e *Endpoint) check(t *udp.Train) error {
	total := 0
	for _, p := range t.Parts {
		total += len(p)
	}
	fault := func(kind error, format string, args ...any) error {
		return &udp.OpError{Op: "send", Addr: t.Dst, Kind: kind, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case total != t.Bytes:
		return fault(udp.ErrTrain, "Bytes is %d, the parts hold %d", t.Bytes, total)
	case t.Bytes > 0 && t.SegmentSize <= 0, t.SegmentSize < 0:
		return fault(udp.ErrTrain, "segment size %d", t.SegmentSize)
	case t.Bytes > udp.MaxTrainBytes, len(t.Parts) > udp.MaxTrainParts, t.Datagrams() > udp.MaxTrainSegments:
		return fault(udp.ErrTrain, "%d bytes in %d parts and %d datagrams", t.Bytes, len(t.Parts), t.Datagrams())
	case !t.Dst.IsValid() || t.Dst.Addr().Unmap().Is4() != e.addr.Addr().Is4():
		return fault(udp.ErrTrain, "not an address to reach from %v", e.addr)
	}
	if t.Datagrams() > 1 {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.config.NoSegmentation {
			e.segments = false
			return fault(udp.ErrSegmentation, "segment size %d of %d bytes", t.SegmentSize, t.Bytes)
		}
		if _, refuses := e.refusing[t.Dst]; refuses {
			e.refusing[t.Dst] = true
			return fault(udp.ErrSegmentation, "segment size %d of %d bytes on this way", t.SegmentSize, t.Bytes)
		}
	}
	return nil
}

func (e *Endpoint) sendTrain(t *udp.Train) {
	now := time.Now()
	whole := bytes.Join(t.Parts, nil)
	dst := netip.AddrPortFrom(t.Dst.Addr().Unmap(), t.Dst.Port())
	overhead := headerSize(dst.Addr().Is6())
	for i := range max(1, t.Datagrams()) {
		size := min(t.SegmentSize, len(whole))
		payload := whole[:size:size]
		whole = whole[size:]
		if size+overhead > e.config.MTU {
			e.network.countOversize()
			continue
		}
		e.network.transmit(&Datagram{
			Src: e.addr, Dst: dst, TrafficClass: t.TrafficClass, Payload: payload, Index: i,
		}, now)
	}
}

func (n *Network) countOversize() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats.Sent++
	n.stats.Oversize++
}

// expect is called by the network with its lock held.
func (e *Endpoint) expect(a arrival) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.coming.Push(a)
	notify(e.wake)
}
