package simnet

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Network connects Endpoints.
type Network struct {
	filterMu sync.Mutex // held while the filter decides: one datagram at a time

	mu        sync.Mutex
	rng       *rand.Rand
	endpoints map[netip.AddrPort]*Endpoint
	tcp       *TCP
	standard  Link
	paths     map[way]*path
	ports     map[netip.Addr]*queue
	cut       map[way]bool
	filter    Filter
	sequence  uint64
	stats     Stats
}

// way is a direction between two addresses. In the cut table a zero address stands for any.
type way struct{ from, to netip.Addr }

// firstFreePort is the first port that Listen tries if it is asked for port 0.
const firstFreePort = 49152

// New returns a network in which every path is perfect: no delay, no limit, no fault.
func New(seed uint64) *Network {
	n := &Network{
		rng:       rand.New(rand.NewPCG(seed, 0)),
		endpoints: map[netip.AddrPort]*Endpoint{},
		paths:     map[way]*path{},
		ports:     map[netip.Addr]*queue{},
		cut:       map[way]bool{},
	}
	n.tcp = newTCP(n, seed)
	return n
}

// SetDefault sets the link of every path that SetLink doesn't name.
func (n *Network) SetDefault(link Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.standard = link
}

// SetLink sets the path from one address to another. Datagrams in flight keep their time of
// arrival.
func (n *Network) SetLink(from, to netip.Addr, link Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.path(way{from, to}).own = &link
}

// Cut loses everything that is sent from one address to another, in this direction. The zero
// Addr stands for any address.
func (n *Network) Cut(from, to netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[way{from, to}] = true
}

// Restore undoes the Cut with the same arguments.
func (n *Network) Restore(from, to netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, way{from, to})
}

// Filter decides what happens to a datagram before its Link does. It may modify d.Payload in
// place or replace it.
type Filter func(d *Datagram) Action

// Datagram is a datagram in flight.
type Datagram struct {
	Src, Dst     netip.AddrPort
	TrafficClass uint8
	Payload      []byte
	Index        int // its index in the train that it was sent in

	segment *segment // of TCP, whose data Payload is; nil if the datagram is of UDP
}

// TCP reports whether d is a segment of TCP. Payload is then its data. A change that a Filter makes is one that TCP's
// checksum doesn't show.
func (d *Datagram) TCP() bool { return d.segment != nil }

// Action is the decision of a Filter. The zero value lets the datagram pass.
type Action struct {
	Drop   bool
	Delay  time.Duration // added to the Link's delay
	Copies int           // how many extra copies arrive
}

// SetFilter installs f; nil removes it.
func (n *Network) SetFilter(f Filter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.filter = f
}

// Stats counts what happened to the datagrams.
type Stats struct {
	Sent       int
	Delivered  int // put into the receiver's buffer
	Lost       int // by Link.Loss and Link.Burst
	Cut        int
	Filtered   int // dropped by the Filter
	QueueFull  int // no room in the Queue of a Link or Port
	BufferFull int // no room in the receiver's buffer
	Oversize   int // longer than the sender's MTU
	Unbound    int // nobody listened when it arrived at the other end
	Duplicated int // additional copies made
	Reordered  int
	Corrupted  int
	Marked     int // with congestion experienced
}

// Stats returns the counts so far.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// Config describes an Endpoint. The zero value has MTU 1500, segmentation, no coalescing, and a
// receive buffer of udp.DefaultBuffer.
type Config struct {
	MTU            int // of the IP packets that it sends, bytes
	RecvBuffer     int // bytes of datagrams that may wait for Recv
	Coalesce       bool
	NoSegmentation bool
}

const defaultMTU = 1500

// Listen creates an endpoint. Port 0 means any free one. The error is a *udp.OpError.
func (n *Network) Listen(addr netip.AddrPort, config Config) (*Endpoint, error) {
	if !addr.Addr().IsValid() || addr.Addr().IsUnspecified() {
		return nil, &udp.OpError{Op: "listen", Addr: addr, Kind: udp.ErrNotLocal}
	}
	config.MTU = cmp.Or(config.MTU, defaultMTU)
	config.RecvBuffer = cmp.Or(config.RecvBuffer, udp.DefaultBuffer)
	if config.MTU < 0 || config.RecvBuffer < 0 {
		return nil, fmt.Errorf("simnet: negative size in %+v", config)
	}
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr.Port() == 0 {
		addr = n.freePort(addr.Addr())
	}
	if n.endpoints[addr] != nil {
		return nil, &udp.OpError{Op: "listen", Addr: addr, Kind: udp.ErrInUse}
	}
	e := newEndpoint(n, addr, config)
	n.endpoints[addr] = e
	return e, nil
}

// freePort returns addr with a free port from the ephemeral range, or with the last one tried
// if there is none.
func (n *Network) freePort(addr netip.Addr) netip.AddrPort {
	for port := uint16(firstFreePort); ; port++ {
		a := netip.AddrPortFrom(addr, port)
		if n.endpoints[a] == nil || port == math.MaxUint16 {
			return a
		}
	}
}
