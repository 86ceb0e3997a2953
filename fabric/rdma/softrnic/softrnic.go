// Package softrnic assembles the software provider: a UDP socket, the RNIC on it (roce) and
// RDMA-CM (cm), ready to be handed to a consumer of verbs.
//
//	nic, err := softrnic.Open(netip.MustParseAddr("127.0.0.1"), softrnic.Config{})
//	l, err := rdma.ListenTarget(nic, addr, tgt, rdma.TargetConfig{})
//
// It needs no hardware, kernel module or privilege, but UDP port 4791 of its address: one RNIC
// an address. Consumers close what they opened on it first.
package softrnic

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/fault"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/capture"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Port is the UDP port of RoCEv2 (IANA: roce).
const Port = 4791

// Values of Config.BusyPoll.
const (
	DefaultBusyPoll = udp.DefaultBusyPoll
	NoBusyPoll      = udp.NoBusyPoll
)

const maxDSCP = 63

// Kinds of failure of Open and OpenFor, for errors.Is.
var (
	// ErrConfig: a field of Config can't be used.
	ErrConfig = errors.New("bad configuration")
	// ErrInUse: another program, or another RNIC of this one, has the UDP port of the address.
	ErrInUse = udp.ErrInUse
	// ErrNotLocal: no interface of this host has the address.
	ErrNotLocal = udp.ErrNotLocal
)

// Config says how an RNIC is opened. The zero value is good.
type Config struct {
	// Plain sends and receives one datagram a message: no segmentation offload, no
	// coalescing. Slower; for networks or kernels where offloads are broken.
	Plain bool
	// BusyPoll is the longest to look for packets before sleeping; it is no longer than twice what
	// the last batches took, or a fifth of it, unless looking for so long has turned out to shorten
	// waits, and only where the last waits were that short, and sleeping doesn't shorten them. Zero
	// is DefaultBusyPoll, NoBusyPoll is never.
	BusyPoll time.Duration
	// RecvBuffer is the socket's receive buffer in bytes; 0 takes as much as the system gives.
	RecvBuffer int
	// DSCP marks the packets, 0 to 63, of connections for which the peer doesn't ask for another,
	// so that switches put them into a class of their own. All are capable of ECN.
	DSCP uint8
	// Priority is that of the packets within this machine, 1 to 6, which a VLAN interface maps
	// to the link's class (PFC); 0 is what the kernel makes of DSCP.
	Priority int
	// MaxHalfOpen and MaxPeerHalfOpen bound the connections that peers have asked for and not
	// confirmed yet, of all and of one address; 0 is 512 and 64. Beyond that a request is rejected
	// with reason 3 (no resources).
	MaxHalfOpen, MaxPeerHalfOpen int
	// NoLocalICRC leaves the ICRC out of the packets of connections with programs of this kind
	// on this host, by an address of its own, that want the same. Off, and where Fault changes bits,
	// every packet has one.
	NoLocalICRC bool
	// Capture writes every packet to a file; nil captures nothing.
	Capture *Capture
	// Fault injects faults into what is sent and received; nil injects none. A capture has what
	// is on the wire: what is lost on purpose is missing where it was sent.
	Fault *fault.Config
}

// Validate says what is wrong with c. The error names the field and is ErrConfig.
func (c *Config) Validate() error {
	bad := func(err error) error { return fmt.Errorf("software RNIC: %w: %w", ErrConfig, err) }
	switch {
	case c.DSCP > maxDSCP:
		return bad(fmt.Errorf("DSCP %d: want 0 to %d", c.DSCP, maxDSCP))
	case c.MaxHalfOpen < 0 || c.MaxPeerHalfOpen < 0:
		return bad(errors.New("MaxHalfOpen, MaxPeerHalfOpen: want a number, or 0 for the default"))
	}
	if c.Fault != nil {
		if err := c.Fault.Validate(); err != nil {
			return bad(err)
		}
	}
	socket := c.socket()
	if err := socket.Validate(); err != nil {
		return bad(err)
	}
	return nil
}

// device is the configuration of the RNIC on the socket.
func (c *Config) device() roce.Config { return roce.Config{TrafficClass: c.DSCP << 2} }

// socket is the configuration of the socket.
func (c *Config) socket() udp.Config {
	device := c.device()
	return udp.Config{
		DisableSegmentation: c.Plain,
		DisableCoalescing:   c.Plain,
		RecvBuffer:          c.RecvBuffer,
		BusyPoll:            c.BusyPoll,
		TrafficClass:        device.SocketClass(),
		Priority:            c.Priority,
	}
}

// RNIC is an open software RNIC: a verbs.Device and its connection manager.
type RNIC struct {
	*cm.Manager
	dev    *roce.Device
	socket udp.Conn
	faults Faults // nil without faults
}

var _ verbs.ConnectionManager = (*RNIC)(nil)

// Open opens the RNIC of a local address. An error that is ErrInUse says who has its UDP port.
func Open(addr netip.Addr, cfg Config) (*RNIC, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	socket, err := udp.Listen(netip.AddrPortFrom(addr, Port), cfg.socket())
	if err != nil {
		return nil, fmt.Errorf("software RNIC: %w", err)
	}
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
	dev, err := roce.Open(conn, device)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("software RNIC on %s: %w", addr, err), conn.Close())
	}
	m, err := cm.New(dev, cm.Config{
		TrafficClass: device.TrafficClass, VendorOptions: cfg.vendorOptions(dev),
		MaxHalfOpen: cfg.MaxHalfOpen, MaxHalfOpenPerPeer: cfg.MaxPeerHalfOpen,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("software RNIC on %s: %w", addr, err), dev.Close())
	}
	return &RNIC{Manager: m, dev: dev, socket: socket, faults: faults}, nil
}

// vendorOptions is what dev's peers of our kind are offered.
func (c *Config) vendorOptions(dev *roce.Device) func(netip.Addr) uint32 {
	always := dev.VendorOptions()
	noICRC := c.NoLocalICRC && (c.Fault == nil || c.Fault.Corrupt == 0)
	return func(peer netip.Addr) uint32 {
		if noICRC && udp.OnThisHost(peer) {
			return always | roce.OptionNoICRC
		}
		return always
	}
}

// OpenFor opens an RNIC on the address from which dst is reached. A destination on loopback
// gets an address of 127.0.0.0/8 that is free, since the target's own has its RNIC already.
func OpenFor(dst netip.Addr, cfg Config) (*RNIC, error) {
	if dst.Is4() && dst.IsLoopback() {
		return openLoopback(cfg)
	}
	src, err := udp.SourceFor(dst)
	if err != nil {
		return nil, fmt.Errorf("software RNIC: no way to %s: %w", dst, err)
	}
	return Open(src, cfg)
}

// loopbackTries bounds the search: an address found free may be taken a moment later by
// another program that searches too.
const loopbackTries = 8

func openLoopback(cfg Config) (*RNIC, error) {
	var last error
	for range loopbackTries {
		addr, err := udp.PickLoopback(Port)
		if err != nil {
			return nil, fmt.Errorf("software RNIC: %w", err)
		}
		nic, err := Open(addr, cfg)
		if err == nil {
			return nic, nil
		}
		if !errors.Is(err, ErrInUse) {
			return nil, err
		}
		last = err
	}
	return nil, last
}

// Device is the RNIC itself.
func (n *RNIC) Device() *roce.Device { return n.dev }

// SocketStats are what an RNIC's UDP socket has counted.
type SocketStats struct {
	RxDatagrams   uint64
	RxBytes       uint64 // UDP payload
	RxSyscalls    uint64 // calls that brought something
	RxEmpty       uint64 // calls that found nothing, of those that didn't wait
	RxKernelDrops uint64 // datagrams lost to a full receive buffer
	RxTruncated   uint64 // receives cut short, and so discarded
	TxDatagrams   uint64
	TxBytes       uint64
	TxSyscalls    uint64
	TxWaits       uint64 // times that the socket was full and sending waited
	TxDrops       uint64 // datagrams that the system refused
}

// SocketStats reads the counters of the RNIC's UDP socket; ok is false where it keeps none.
func (n *RNIC) SocketStats() (s SocketStats, ok bool) {
	counted, ok := n.socket.(udp.Counted)
	if !ok {
		return s, false
	}
	c := counted.Counters()
	return SocketStats{
		RxDatagrams: c.RxDatagrams.Load(), RxBytes: c.RxBytes.Load(), RxSyscalls: c.RxSyscalls.Load(), RxEmpty: c.RxEmpty.Load(),
		RxKernelDrops: c.RxKernelDrops.Load(), RxTruncated: c.RxTruncated.Load(),
		TxDatagrams: c.TxDatagrams.Load(), TxBytes: c.TxBytes.Load(), TxSyscalls: c.TxSyscalls.Load(),
		TxWaits: c.TxWaits.Load(), TxDrops: c.TxDrops.Load(),
	}, true
}

// Offloads says, for people, how packets travel between the RNIC and the kernel.
func (n *RNIC) Offloads() string {
	if n.faults == nil && n.socket.Segmentation() {
		return "segmentation offload"
	}
	return "one datagram a message"
}

// Faults are those that are injected into an RNIC.
type Faults interface {
	// Config is Config.Fault, with the seed that was drawn.
	Config() fault.Config
	// Faults counts the packets that met one.
	Faults() *fault.Counters
}

// Faults are those that are injected, nil where none are.
func (n *RNIC) Faults() Faults { return n.faults }

// Close ends every connection and frees the port.
func (n *RNIC) Close() error {
	return errors.Join(n.Manager.Close(), n.dev.Close())
}

// Capture is a pcapng file that RNICs, and TCP connections, write to.
type Capture struct{ file *capture.File }

// CreateCapture makes the file, which must not exist; a named pipe may.
func CreateCapture(path, application string) (*Capture, error) {
	f, err := capture.Create(path, application)
	if err != nil {
		return nil, err
	}
	return &Capture{f}, nil
}

// Stream is a tcp.Tap (package fabric/tcp) that records one connection.
type Stream interface {
	Sent(parts [][]byte)
	Received(parts [][]byte, n int)
	Close()
}

// Stream records a TCP connection into the same file, so that one shows both transports; client
// says that this side opened it.
func (c *Capture) Stream(local, remote netip.AddrPort, client bool) Stream {
	return c.file.Stream(local, remote, client)
}

// Close ends the file, and reports packets that could not be written.
func (c *Capture) Close() error {
	err := c.file.Close()
	if n := c.file.Dropped(); n > 0 && err == nil {
		err = fmt.Errorf("capture: %d packets came faster than they could be written and are missing", n)
	}
	return err
}
