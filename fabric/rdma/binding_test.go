package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testNQN = "nqn.2026-11.io.nvme-anywhere:test"

// rig is a target and a host on two software RNICs of this machine's loopback.
type rig struct {
	target    *target.Target
	listener  *rdma.Listener
	targetNIC *softrnic.RNIC
	hostNIC   *softrnic.RNIC
	transport *rdma.Transport
	addr      netip.AddrPort
}

func newRig(t testing.TB, cfg rdma.TargetConfig, v blockdev.Volume) *rig {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tgt, err := target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v}},
	}}})
	must(err)
	targetNIC := openNIC(t)
	addr := netip.AddrPortFrom(targetNIC.Device().Attr().Addr, 4420)
	l, err := rdma.ListenTarget(targetNIC, addr, tgt, cfg)
	must(err)
	must(tgt.AddPort(rdma.DiscoveryPort(addr, nvme.RDMAProviderRoCE2)))
	hostNIC := openNIC(t)
	tr, err := rdma.NewTransport(hostNIC, rdma.HostConfig{})
	must(err)
	r := &rig{target: tgt, listener: l, targetNIC: targetNIC, hostNIC: hostNIC, transport: tr, addr: addr}
	t.Cleanup(func() {
		for _, f := range []func() error{
			tr.Close, hostNIC.Close, l.Close, targetNIC.Close,
			func() error { return tgt.Close(context.Background()) }, v.Close,
		} {
			// TestHostGoesAway has closed its RNIC already.
			if err := f(); err != nil && !errors.Is(err, verbs.ErrClosed) {
				t.Error(err)
			}
		}
	})
	return r
}

func openNIC(t testing.TB) *softrnic.RNIC {
	t.Helper()
	nic, err := softrnic.OpenFor(netip.MustParseAddr("127.0.0.1"), softrnic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return nic
}

func (r *rig) connect(t testing.TB, change func(*host.Config)) *host.Controller {
	t.Helper()
	cfg := host.Config{Transport: r.transport, Remote: r.addr, SubNQN: testNQN, Queues: 2}
	if change != nil {
		change(&cfg)
	}
	c, err := host.Connect(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func listen(t testing.TB, cm verbs.ConnectionManager, addr netip.AddrPort, tgt *target.Target, cfg rdma.TargetConfig) *rdma.Listener {
	t.Helper()
	l, err := rdma.ListenTarget(cm, addr, tgt, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newTransport(t testing.TB, cm verbs.ConnectionManager, cfg rdma.HostConfig) *rdma.Transport {
	t.Helper()
	tr, err := rdma.NewTransport(cm, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// namespace opens a namespace.
func namespace(t testing.TB, c *host.Controller, nsid uint32) *host.Namespace {
	t.Helper()
	ns, err := c.Namespace(t.Context(), nsid)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

func memory(t testing.TB, size int64) blockdev.Volume {
	t.Helper()
	v, err := blockdev.NewMemory(blockdev.Options{Size: size, BlockSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestTransferSizes moves every kind of size, in the capsule and outside, from registered
// and from other memory.
func TestTransferSizes(t *testing.T) {
	for _, inCapsule := range []int{-1, 4096, 16384} {
		t.Run(fmt.Sprintf("in-capsule %d", inCapsule), func(t *testing.T) {
			r := newRig(t, rdma.TargetConfig{InCapsule: inCapsule}, memory(t, 16<<20))
			c := r.connect(t, nil)
			defer c.Close()
			ns := namespace(t, c, 1)
			registered, err := c.Alloc(2 << 20)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Free(registered)
			rng := rand.NewChaCha8([32]byte{1})
			for _, n := range []int{512, 1024, 3584, 4096, 4608, 8192, 65536, 131072 - 512, 1 << 20, 2 << 20} {
				for name, buf := range map[string][]byte{"registered": registered[:n], "other": make([]byte, n)} {
					want := make([]byte, n)
					_, _ = rng.Read(want)
					copy(buf, want)
					if _, err := ns.WriteAt(t.Context(), buf, 512); err != nil {
						t.Fatalf("write %d bytes of %s memory: %v", n, name, err)
					}
					clear(buf)
					if _, err := ns.ReadAt(t.Context(), buf, 512); err != nil {
						t.Fatalf("read %d bytes into %s memory: %v", n, name, err)
					}
					if !bytes.Equal(buf, want) {
						t.Fatalf("%d bytes of %s memory came back different", n, name)
					}
				}
			}
		})
	}
}

// TestMemoryShortage makes commands wait for data memory; all of them are served.
func TestMemoryShortage(t *testing.T) {
	// A volume that isn't a blockdev.Memory: data passes through the target's memory.
	v := opaque{memory(t, 16<<20)}
	r := newRig(t, rdma.TargetConfig{Memory: 4 << 20, InCapsule: -1, MaxTransfer: 1 << 20}, v)
	c := r.connect(t, nil)
	defer c.Close()
	ns := namespace(t, c, 1)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			b := bytes.Repeat([]byte{byte(i + 1)}, 1<<20)
			if _, err := ns.WriteAt(t.Context(), b, int64(i)<<20); err != nil {
				t.Errorf("write %d: %v", i, err)
			}
			got := make([]byte, len(b))
			if _, err := ns.ReadAt(t.Context(), got, int64(i)<<20); err != nil || !bytes.Equal(got, b) {
				t.Errorf("read %d: %v, equal %v", i, err, bytes.Equal(got, b))
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.Log("host", r.hostNIC.Device().Counters())
		t.Log("target", r.targetNIC.Device().Counters())
	}
	if r.listener.Counters().MemoryWaits.Load() == 0 {
		t.Error("no command had to wait: the test shows nothing")
	}
}

// opaque hides that a volume lies in memory.
type opaque struct{ blockdev.Volume }

// TestHostGoesAway removes the host in the middle of its commands: the target gives every request back and forgets the
// connections.
func TestHostGoesAway(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 64<<20))
	c := r.connect(t, nil)
	b, err := c.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Add(1)
		req := &host.Request{Data: b, Done: func(*host.Request) { wg.Done() }}
		req.Cmd.SetIO(nvme.OpRead, 1, uint64(i), 2048, 0)
		c.Queues()[i%2].SubmitOne(req)
	}
	if err := r.hostNIC.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait() // every command ends, with an error or without
	<-c.Done()
	if err := c.Err(); !errors.Is(err, host.ErrLost) {
		t.Errorf("the controller ended with %v, want %v", err, host.ErrLost)
	}
	_ = c.Close()
	c.Free(b)
	waitFor(t, "the target to forget the connections", func() bool { return r.listener.Counters().Connections.Load() == 0 })
}

// TestTargetCloses: a host whose endpoint is closed learns of it at once, and isn't counted as lost, although it closes
// its other connections when it finds the first one closed.
func TestTargetCloses(t *testing.T) {
	for range 10 {
		r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
		c := r.connect(t, func(cfg *host.Config) { cfg.Queues = 16 })
		if err := r.listener.Close(); err != nil {
			t.Fatal(err)
		}
		if _, ok := soon.Receive(c.Done()); !ok {
			t.Fatal("the host has not noticed")
		}
		_ = c.Close()
		if n := r.listener.Counters().Connections.Load(); n != 0 {
			t.Errorf("%d connections left", n)
		}
		if n := r.target.Snapshot().Transports[0].LostHosts; n != 0 {
			t.Fatalf("%d hosts count as lost that the target has let go", n)
		}
	}
}

// receivesCM is an RNIC that counts the receives posted to its newest queue pair.
type receivesCM struct {
	verbs.ConnectionManager
	posted atomic.Int64
}

type receivesID struct {
	verbs.CMID
	cm *receivesCM
}

type receivesQP struct {
	verbs.QP
	cm *receivesCM
}

func (c *receivesCM) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	id, err := c.ConnectionManager.CreateID(handler)
	return receivesID{id, c}, err
}

func (i receivesID) CreateQP(pd verbs.PD, init verbs.QPInitAttr) (verbs.QP, error) {
	qp, err := i.CMID.CreateQP(pd, init)
	i.cm.posted.Store(0)
	return receivesQP{qp, i.cm}, err
}

func (q receivesQP) PostRecv(wrs []verbs.RecvWR) (int, error) {
	n, err := q.QP.PostRecv(wrs)
	q.cm.posted.Add(int64(n))
	return n, err
}

// TestReceivesAsNeeded: a host posts as many receives as it has commands outstanding, and a few more.
func TestReceivesAsNeeded(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	cm := &receivesCM{ConnectionManager: r.hostNIC}
	tr := newTransport(t, cm, rdma.HostConfig{})
	defer tr.Close()
	c := r.connect(t, func(cfg *host.Config) { cfg.Transport, cfg.Queues = tr, 1 })
	defer c.Close()
	ns := namespace(t, c, 1)
	buf := make([]byte, 512)
	for i := range int64(100) {
		if _, err := ns.ReadAt(t.Context(), buf, 0); err != nil {
			t.Fatal(err)
		}
		answered := 1 + i + 1 // Connect, and the reads
		if n := cm.posted.Load() - answered; n < 0 || n > 8 {
			t.Fatalf("%d receives for one command at a time", n)
		}
	}
	var done sync.WaitGroup
	rs := make([]*host.Request, c.Queues()[0].Depth())
	for i := range rs {
		done.Add(1)
		rs[i] = &host.Request{Data: make([]byte, 512), Done: func(r *host.Request) {
			if err := r.Check(); err != nil {
				t.Error(err)
			}
			done.Done()
		}}
		rs[i].Cmd.SetIO(nvme.OpRead, 1, 0, 1, 0)
	}
	c.Queues()[0].Submit(rs)
	done.Wait()
	if n := r.targetNIC.Device().Counters()[roce.OutOfBuffer] + r.hostNIC.Device().Counters()[roce.OutOfBuffer]; n > 0 {
		t.Errorf("%d messages came before there was a receive for them", n)
	}
}

// patience is far longer than anything takes that ends at all, on a machine that may stall for a while.
const patience = 5 * time.Minute

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !soon.Until(ok) {
		t.Fatalf("waited in vain for %s", what)
	}
}

// TestRefusals checks the error that a host gets if it asks for too much, or if nobody listens.
func TestRefusals(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{QueueDepth: 32}, memory(t, 1<<20))
	dial := func(a host.QueueAttr) error {
		a.Sink = noSink{}
		q, err := r.transport.Dial(t.Context(), a)
		if err == nil {
			_ = q.Close()
		}
		return err
	}
	var reject *rdma.RejectError
	err := dial(host.QueueAttr{Remote: r.addr, QID: 1, CNTLID: 1, Size: 33})
	if !errors.As(err, &reject) || reject.Status != rdma.RejectInvalidHSQSize {
		t.Errorf("a queue too deep: %v, want %v", err, rdma.RejectInvalidHSQSize)
	}
	reject = nil
	err = dial(host.QueueAttr{Remote: netip.AddrPortFrom(r.addr.Addr(), 4421), Size: 32})
	if !errors.As(err, &reject) || reject.Reason != 8 {
		t.Errorf("a port where nothing listens: %v, want REJ reason 8 (invalid service ID)", err)
	}
	if err := dial(host.QueueAttr{Remote: r.addr, Size: 32}); err != nil {
		t.Errorf("a queue as it should be: %v", err)
	}
}

type noSink struct{}

func (noSink) Completed(*nvme.Completion) bool { return false }
func (noSink) Closed(error)                    {}
