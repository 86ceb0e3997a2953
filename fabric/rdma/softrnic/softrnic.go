package softrnic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/fault"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Port is the UDP port of RoCEv2 (IANA: roce).
const Port = wire.Port

// Kinds of failure of Open and OpenFor, for errors.Is.
var (
	// ErrConfig means that a field of Config, or the destination, can't be used.
	ErrConfig = errors.New("bad configuration")
	// ErrInUse means that another program, or another RNIC of this one, has the UDP port of the address.
	ErrInUse = udp.ErrInUse
	// ErrNotLocal means that no interface of this host has the address.
	ErrNotLocal = udp.ErrNotLocal
)

// RNIC is an open software RNIC: a verbs.Device and its connection manager.
type RNIC struct {
	manager *cm.Manager
	dev     *roce.Device
	socket  udp.Conn
	shares  bool   // shares memory with programs of this kind
	faults  Faults // nil without faults
}

var _ verbs.ConnectionManager = (*RNIC)(nil)

// Open opens the RNIC of a local address: one, whatever Config.Engines says. An error that matches ErrInUse says who has
// its UDP port.
func Open(addr netip.Addr, cfg Config) (*RNIC, error) {
	cfg.Engines = 1
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	socket, err := udp.Listen(netip.AddrPortFrom(addr, Port), cfg.socket())
	if err != nil {
		return nil, fmt.Errorf("software RNIC: %w", err)
	}
	return assemble(addr, socket, cfg, 0)
}

// assemble makes the RNIC that is an engine of an address, on a socket, which it closes if it fails.
func assemble(addr netip.Addr, socket udp.Conn, cfg Config, engine int) (*RNIC, error) {
	conn := socket
	if cfg.Capture != nil {
		conn = cfg.Capture.file.Conn(socket)
	}
	var faults Faults
	if cfg.Fault != nil {
		faulty := fault.Wrap(conn, *cfg.Fault)
		conn, faults = faulty, faulty
	}
	device := cfg.device()
	device.Engine = engine
	room := func(peer netip.Addr) int { return roomTo(socket, peer) }
	dev, err := roce.Open(conn, device)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("software RNIC on %s: %w", addr, err), conn.Close())
	}
	m, err := cm.New(dev, cm.Config{
		TrafficClass: device.TrafficClass, VendorOptions: cfg.vendorOptions(dev, room),
		PathMTU:     func(peer netip.Addr) verbs.MTU { return dev.PathMTU(room(peer)) },
		MaxHalfOpen: cfg.MaxHalfOpen, MaxHalfOpenPerPeer: cfg.MaxPeerHalfOpen,
		Engines: device.Engines, Engine: engine,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("software RNIC on %s: %w", addr, err), dev.Close())
	}
	dev.SettleMADs(m.Settle)
	return &RNIC{manager: m, dev: dev, socket: socket, shares: cfg.LocalMemory, faults: faults}, nil
}

// roomTo returns the largest packet that reaches peer from a socket, as far as is known. It is never more than the
// interface's MTU when the socket was opened.
func roomTo(socket udp.Conn, peer netip.Addr) int {
	local := socket.LocalAddr()
	mtu, err := udp.PathMTU(local.Addr(), netip.AddrPortFrom(peer, local.Port()))
	if err != nil {
		return socket.MTU()
	}
	return min(mtu, socket.MTU())
}

// OpenFor opens an RNIC on the address from which dst is reached. If that is dst itself, an address of this host, the
// peer already has its RNIC there, so another free address of this host is used: with IPv4 one of 127.0.0.0/8, with
// IPv6 ::1 or that of an interface.
func OpenFor(dst netip.Addr, cfg Config) (*RNIC, error) {
	dst = dst.Unmap()
	src, err := sourceFor(netip.Addr{}, dst)
	if err != nil {
		return nil, err
	}
	cfg.Engines = 1
	g, err := openFrom(src, dst, cfg)
	if err != nil {
		return nil, err
	}
	return g.rnics[0], nil
}

// sourceFor returns the address to reach dst from: src or, if that is invalid, where the route to dst starts.
func sourceFor(src, dst netip.Addr) (netip.Addr, error) {
	switch {
	case !dst.IsValid() || dst.IsUnspecified() || dst.IsMulticast() || dst == broadcast:
		return dst, fmt.Errorf("software RNIC: %w: destination %s: want the address of one host", ErrConfig, dst)
	case src == dst: // each side needs the UDP port for itself
		return dst, fmt.Errorf("software RNIC: %w: %s is the destination, too: want another address of this host", ErrConfig, src)
	case src.IsValid():
		return src, nil
	case dst.Is4() && dst.IsLoopback(): // the system's answer would be 127.0.0.1 for all of them
		return dst, nil
	}
	src, err := udp.SourceFor(dst)
	if err != nil {
		return dst, fmt.Errorf("software RNIC: no way to %s: %w", dst, err)
	}
	return src, nil
}

// openFrom opens RNICs at src, where the route to dst starts, or, if that is dst itself, at another address.
func openFrom(src, dst netip.Addr, cfg Config) (*Group, error) {
	switch {
	case src != dst:
		return OpenGroup(src, cfg)
	case dst.Is4():
		return openLoopback(cfg)
	}
	others, err := udp.Beside(dst)
	if err != nil {
		return nil, fmt.Errorf("software RNIC: no way to %s: %w", dst, err)
	}
	return openBeside(dst, others, cfg)
}

// broadcast is the limited broadcast address (RFC 919).
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// openBeside opens RNICs on an IPv6 address of this host from which dst is reached: the first free one of others. dst
// itself is the target's.
func openBeside(dst netip.Addr, others []netip.Addr, cfg Config) (*Group, error) {
	for _, a := range others {
		if g, err := OpenGroup(a, cfg); !errors.Is(err, ErrInUse) {
			return g, err
		}
	}
	return nil, fmt.Errorf("software RNIC: no way to %s, which is the target's address: of the others that this host has in IPv6 none is free (%w); "+
		"give it one more, as by `ip address add fd00::1/128 dev lo`, or reach the target over IPv4", dst, ErrInUse)
}

// loopbackTries bounds the search: few of the 16 million addresses are ever taken.
const loopbackTries = 8

func openLoopback(cfg Config) (g *Group, err error) {
	for range loopbackTries {
		if g, err = OpenGroup(someLoopback(), cfg); !errors.Is(err, ErrInUse) {
			break
		}
	}
	return g, err
}

// someLoopback returns a random address of 127.0.0.0/8: from 127.1.1.1 up, where by convention there is no resolver or
// host name.
func someLoopback() netip.Addr {
	part := func() byte { return byte(1 + rand.N(254)) }
	return netip.AddrFrom4([4]byte{127, part(), part(), part()})
}

// Name returns the RNIC's address, with its place in the Group behind it if there are several at that address:
// 192.0.2.1/0.
func (n *RNIC) Name() string {
	_, name, _ := strings.Cut(n.dev.Attr().Name, "@")
	return name
}

// Device returns the RNIC itself.
func (n *RNIC) Device() *roce.Device { return n.dev }

// Offloads describes, for people, how packets travel between the RNIC and the kernel, or bypass it.
func (n *RNIC) Offloads() string {
	how := "one datagram a message"
	if n.faults == nil && n.socket.Segmentation() {
		how = "segmentation offload"
	}
	if n.shares {
		how += ", local memory"
	}
	return how
}

// Faults are the faults that are injected into an RNIC.
type Faults interface {
	// Config returns Config.Fault, with the seed that was drawn.
	Config() fault.Config
	// Faults counts the packets that were affected.
	Faults() *fault.Counters
}

// Faults returns the faults that are injected, or nil if there are none.
func (n *RNIC) Faults() Faults { return n.faults }

// CreateID makes an identifier of the RNIC (rdma_create_id).
func (n *RNIC) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	return n.manager.CreateID(handler)
}

// Counters returns the counters of the connection manager; those of the device are Device().Counters.
func (n *RNIC) Counters() *cm.Counters { return n.manager.Counters() }

// Close ends every connection and frees the port. A second Close returns verbs.ErrClosed.
func (n *RNIC) Close() error {
	return errors.Join(n.manager.Close(), n.dev.Close())
}
