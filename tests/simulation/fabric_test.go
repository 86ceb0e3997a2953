package simulation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

const (
	rocePort    = 4791
	nvmePort    = 4420
	maxTransfer = 64 << 10
)

// nic is a software RNIC on the simulated network, as softrnic makes one on a socket.
type nic struct {
	*cm.Manager
	dev *roce.Device
}

func openNIC(n *simnet.Network, addr netip.Addr) (*nic, error) {
	conn, err := n.Listen(netip.AddrPortFrom(addr, rocePort), simnet.Config{MTU: 9000, RecvBuffer: 1 << 20})
	if err != nil {
		return nil, err
	}
	dev, err := roce.Open(conn, roce.Config{})
	if err != nil {
		return nil, err
	}
	m, err := cm.New(dev, cm.Config{VendorOptions: func(netip.Addr) uint32 { return dev.VendorOptions() }})
	if err != nil {
		return nil, err
	}
	dev.SettleMADs(m.Settle)
	return &nic{m, dev}, nil
}

func (n *nic) Close() error { return errors.Join(n.Manager.Close(), n.dev.Close()) }

// overTCP says how NVMe/TCP is used in a world.
type overTCP struct {
	headerDigest, dataDigest bool
	inCapsule, maxH2CData    int   // of targets
	memory                   int64 // of each of their ports
}

func drawTCP(rng *rand.Rand) overTCP {
	return overTCP{
		headerDigest: rng.IntN(2) == 0, dataDigest: rng.IntN(2) == 0,
		inCapsule: pick(rng, []int{-1, 4 << 10, 16 << 10}), maxH2CData: pick(rng, []int{4 << 10, maxTransfer}),
		memory: pick(rng, []int64{4 * maxTransfer, 4 << 20}), // one transfer for each host, or many
	}
}

// covered reports whether digests cover all that is sent once a connection is initialized.
func (o overTCP) covered() bool { return o.headerDigest && o.dataDigest }

// port is where a target listens.
type port struct {
	nic      *nic // nil for NVMe/TCP, and once it is unplugged
	listener interface {
		Stop()
		Close() error
	}
	connections *atomic.Int64
}

// listen opens the port of a target at an address.
func (w *world) listen(a netip.Addr, t *target.Target) (*port, error) {
	at := netip.AddrPortFrom(a, nvmePort)
	if w.kinds[a] == nvme.TransportTCP {
		l, err := tcp.ListenTarget(at, t, tcp.TargetConfig{
			Memory: w.tcp.memory, MaxTransfer: maxTransfer, InCapsule: w.tcp.inCapsule, MaxH2CData: w.tcp.maxH2CData,
			DataTimeout: w.limits.io, BusyPoll: tcp.NoBusyPoll, Network: w.net.TCP(),
		})
		if err != nil {
			return nil, err
		}
		return &port{listener: l, connections: &l.Counters().Connections}, t.AddPort(tcp.DiscoveryPort(l.Addr()))
	}
	n, err := openNIC(w.net, a)
	if err != nil {
		return nil, err
	}
	l, err := rdma.ListenTarget(n, at, t, rdma.TargetConfig{Memory: 4 << 20, MaxTransfer: maxTransfer})
	if err != nil {
		return nil, err
	}
	return &port{n, l, &l.Counters().Connections}, t.AddPort(rdma.DiscoveryPort(l.Addr(), 0))
}

// unplug closes the RNIC, if there is one.
func (p *port) unplug() error {
	if p.nic == nil {
		return nil
	}
	defer func() { p.nic = nil }()
	return p.nic.Close()
}

func (p *port) close() error {
	err := p.listener.Close()
	if n := p.connections.Load(); n != 0 {
		err = errors.Join(err, fmt.Errorf("a closed listener has %d connections", n))
	}
	return err
}

// adapter is how a host uses one of its addresses.
type adapter struct {
	nic  *nic
	rdma *rdma.Transport
	tcp  *tcp.Transport
}

func (w *world) openAdapter(a netip.Addr) (*adapter, error) {
	n, err := openNIC(w.net, a)
	if err != nil {
		return nil, err
	}
	r, err := rdma.NewTransport(n, rdma.HostConfig{ResolveTimeout: time.Second})
	if err != nil {
		return nil, err
	}
	t, err := tcp.NewTransport(tcp.HostConfig{
		HeaderDigest: w.tcp.headerDigest, DataDigest: w.tcp.dataDigest, BusyPoll: tcp.NoBusyPoll, Network: w.net.TCP(),
	})
	return &adapter{n, r, t}, err
}

// transport returns the one to a kind of port.
func (a *adapter) transport(kind nvme.TransportType) host.Transport {
	if kind == nvme.TransportTCP {
		return a.tcp
	}
	return a.rdma
}

func (a *adapter) close() error {
	err := errors.Join(a.rdma.Close(), a.tcp.Close(), a.nic.Close())
	if r, t := a.rdma.Counters().Connections.Load(), a.tcp.Counters().Connections.Load(); r != 0 || t != 0 {
		err = errors.Join(err, fmt.Errorf("closed transports have %d and %d connections", r, t))
	}
	return err
}
