package metrics

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testNQN = "nqn.2026-11.io.nvme-anywhere:metrics"
	hostNQN = "nqn.2014-08.org.nvmexpress:uuid:8a4e2c4e-3c4f-4c47-9a6b-0d6cbe6d6c01"
)

// pair is a target, served over both transports and shown by a Set, and hosts that use it.
type pair struct {
	t        *testing.T
	set      *Set
	target   *target.Target
	rdmaAddr netip.AddrPort
	tcpAddr  netip.AddrPort
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t, set: New()}
	v, err := blockdev.NewMemory(blockdev.Options{Size: 64 << 20})
	p.must(err)
	t.Cleanup(func() { v.Close() })
	tgt, err := target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v}},
	}}})
	p.must(err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		tgt.Close(ctx)
	})
	p.set.AddVolume("1", v)
	p.target = tgt
	p.set.AddTarget(tgt)
	p.listenRDMA(tgt)
	p.listenTCP(tgt)
	return p
}

func (p *pair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) listenRDMA(tgt *target.Target) {
	nic, err := softrnic.OpenFor(netip.MustParseAddr("127.0.0.1"), softrnic.Config{})
	p.must(err)
	p.t.Cleanup(func() { nic.Close() })
	p.rdmaAddr = netip.AddrPortFrom(nic.Device().Attr().Addr, 4420)
	l, err := rdma.ListenTarget(nic, p.rdmaAddr, tgt, rdma.TargetConfig{})
	p.must(err)
	p.t.Cleanup(func() { l.Close() })
	p.set.AddRNIC("target", nic)
	p.set.AddRDMA(Target, l.Counters())
}

func (p *pair) listenTCP(tgt *target.Target) {
	l, err := tcp.ListenTarget(netip.MustParseAddrPort("127.0.0.1:0"), tgt, tcp.TargetConfig{})
	p.must(err)
	p.t.Cleanup(func() { l.Close() })
	p.tcpAddr = l.Addr()
	p.set.AddTCP(Target, l.Counters())
}

// connectRDMA returns a controller connected over a new RNIC.
func (p *pair) connectRDMA() *host.Controller {
	nic, err := softrnic.OpenFor(p.rdmaAddr.Addr(), softrnic.Config{})
	p.must(err)
	p.t.Cleanup(func() { nic.Close() })
	tr, err := rdma.NewTransport(nic, rdma.HostConfig{})
	p.must(err)
	p.t.Cleanup(func() { tr.Close() })
	p.set.AddRNIC("host", nic)
	p.set.AddRDMA(Host, tr.Counters())
	return p.connect(tr, p.rdmaAddr)
}

func (p *pair) connectTCP() *host.Controller {
	tr, err := tcp.NewTransport(tcp.HostConfig{})
	p.must(err)
	p.t.Cleanup(func() { tr.Close() })
	p.set.AddTCP(Host, tr.Counters())
	return p.connect(tr, p.tcpAddr)
}

func (p *pair) connect(tr host.Transport, addr netip.AddrPort) *host.Controller {
	c, err := host.Connect(p.t.Context(), host.Config{
		Transport: tr, Remote: addr, SubNQN: testNQN, HostNQN: hostNQN, Queues: 1,
	})
	p.must(err)
	p.t.Cleanup(func() { c.Close() })
	p.set.AddController(c)
	return c
}

// use reads and writes: 3 writes and 5 reads of 8 KiB.
func (p *pair) use(c *host.Controller) {
	p.t.Helper()
	ns, err := c.Namespace(p.t.Context(), 1)
	p.must(err)
	b := make([]byte, 8<<10)
	for i := range int64(3) {
		_, err := ns.WriteAt(p.t.Context(), b, i<<20)
		p.must(err)
	}
	for i := range int64(5) {
		_, err := ns.ReadAt(p.t.Context(), b, i<<20)
		p.must(err)
	}
}
