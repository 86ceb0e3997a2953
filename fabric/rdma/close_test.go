package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// idCM counts the identifiers that exist.
type idCM struct {
	verbs.ConnectionManager
	ids atomic.Int32
}

type countedID struct {
	verbs.CMID
	cm *idCM
}

func (c *idCM) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	id, err := c.ConnectionManager.CreateID(handler)
	if err == nil {
		c.ids.Add(1)
	}
	return countedID{id, c}, err
}

func (i countedID) Destroy() error {
	i.cm.ids.Add(-1)
	return i.CMID.Destroy()
}

// TestListenInVain: a listener that couldn't be made leaves nothing behind in the connection manager.
func TestListenInVain(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	cm := &idCM{ConnectionManager: r.targetNIC}
	for name, addr := range map[string]netip.AddrPort{
		"a port in use": r.addr, "another's address": netip.AddrPortFrom(r.hostNIC.Device().Attr().Addr, 4420),
	} {
		l, err := rdma.ListenTarget(cm, addr, r.target, rdma.TargetConfig{})
		if err == nil {
			_ = l.Close()
			t.Errorf("%s: it listens", name)
		}
		if n := cm.ids.Swap(0); n != 0 {
			t.Errorf("%s: %d identifiers are left", name, n)
		}
	}
}

// TestListenForClosed: nothing listens for a target that is closed, or for none, and nothing listens or connects
// without a manager.
func TestListenForClosed(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	tg, err := target.New(target.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tg.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := rdma.ListenTarget(r.targetNIC, netip.AddrPortFrom(r.addr.Addr(), 4421), tg, rdma.TargetConfig{})
	if err == nil {
		_ = l.Close()
	}
	if !errors.Is(err, target.ErrClosed) {
		t.Error(err)
	}
	if _, err := rdma.ListenTarget(r.targetNIC, netip.AddrPortFrom(r.addr.Addr(), 4421), nil, rdma.TargetConfig{}); !errors.Is(err, rdma.ErrConfig) {
		t.Errorf("without a target: %v", err)
	}
	if _, err := rdma.ListenTarget(nil, r.addr, r.target, rdma.TargetConfig{}); !errors.Is(err, rdma.ErrConfig) {
		t.Errorf("without a manager: %v", err)
	}
	if _, err := rdma.NewTransport(nil, rdma.HostConfig{}); !errors.Is(err, rdma.ErrConfig) {
		t.Error(err)
	}
}

// goneCM is a connection manager whose requests are gone by the time they are accepted.
type goneCM struct{ verbs.ConnectionManager }

type goneID struct{ verbs.CMID }

func (c goneCM) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	return c.ConnectionManager.CreateID(func(ev verbs.CMEvent) {
		ev.ID = goneID{ev.ID}
		handler(ev)
	})
}

func (goneID) Accept(verbs.ConnParam) error { return verbs.ErrState }

// TestAcceptTooLate: if a host gives up before it is accepted, as happens while the target stalls, the log has no NVMe
// status, because nothing was wrong with the request.
func TestAcceptTooLate(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	addr := netip.AddrPortFrom(r.addr.Addr(), 4421)
	var text bytes.Buffer
	l := listen(t, goneCM{r.targetNIC}, addr, r.target, rdma.TargetConfig{Log: slog.New(slog.NewTextHandler(&text, nil))})
	if _, err := host.Connect(t.Context(), host.Config{Transport: r.transport, Remote: addr, SubNQN: testNQN}); err == nil {
		t.Error("it is connected")
	}
	if err := l.Close(); err != nil { // after which nothing is logged
		t.Fatal(err)
	}
	if s := text.String(); !strings.Contains(s, "rdma: connection not accepted") || strings.Contains(s, "status") || l.Counters().Rejected.Load() != 1 {
		t.Errorf("%d rejected: %s", l.Counters().Rejected.Load(), s)
	}
}

// TestDrainingIsNoWarning: the hosts that a draining target refuses, each again and again until it takes them, are no
// reason for a warning; only the details say that they were there.
func TestDrainingIsNoWarning(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	addr := netip.AddrPortFrom(r.addr.Addr(), 4421)
	var text bytes.Buffer
	l := listen(t, r.targetNIC, addr, r.target, rdma.TargetConfig{Log: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err := r.target.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Connect(t.Context(), host.Config{Transport: r.transport, Remote: addr, SubNQN: testNQN}); err == nil {
		t.Error("it is connected")
	}
	if err := l.Close(); err != nil { // after which nothing is logged
		t.Fatal(err)
	}
	if s := text.String(); !strings.Contains(s, "rdma: connection refused") || !strings.Contains(s, target.ErrDraining.Error()) || strings.Contains(s, "level=WARN") {
		t.Errorf("%d rejected: %s", l.Counters().Rejected.Load(), s)
	}
}

// slowCM is a connection manager whose requests wait for their queue pairs; it counts those that are gone.
type slowCM struct {
	verbs.ConnectionManager
	release chan struct{}
	waiting atomic.Bool
	gone    atomic.Int32
}

type slowID struct {
	verbs.CMID
	cm *slowCM
}

func (c *slowCM) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	return c.ConnectionManager.CreateID(func(ev verbs.CMEvent) {
		ev.ID = slowID{ev.ID, c}
		handler(ev)
	})
}

func (i slowID) CreateQP(pd verbs.PD, init verbs.QPInitAttr) (verbs.QP, error) {
	i.cm.waiting.Store(true)
	<-i.cm.release
	return i.CMID.CreateQP(pd, init)
}

func (i slowID) Destroy() error {
	i.cm.gone.Add(1)
	return i.CMID.Destroy()
}

// TestListenerClosedMeanwhile: Close waits for a connection that is being set up, which uses the listener's memory and
// is then refused.
func TestListenerClosedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simNetwork(false)
		tgt, err := target.New(target.Config{})
		if err != nil {
			t.Fatal(err)
		}
		tn, hn := newSimNIC(t, n, simTarget), newSimNIC(t, n, simHost)
		cm := &slowCM{ConnectionManager: tn, release: make(chan struct{})}
		l := listen(t, cm, simNVMe, tgt, rdma.TargetConfig{})
		p := &rawPeer{t: t}
		answer := make(chan verbs.CMEvent, 1)
		go func() { answer <- p.request(hn, []byte{0, 0, 1, 0, 32, 0, 31, 0, 31: 0}) }()
		for !cm.waiting.Load() {
			time.Sleep(time.Millisecond)
		}
		closed := make(chan struct{})
		go func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed while a connection is being made")
		default:
		}
		close(cm.release)
		<-closed
		if n := cm.gone.Load(); n != 1 {
			t.Errorf("%d connections are gone, want 1", n)
		}
		if ev := <-answer; ev.Type != verbs.CMRejected {
			t.Errorf("%v, want a rejection", ev.Type)
		}
		p.close()
		hn.close(t)
		tn.close(t)
		if err := tgt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// hangingVolume holds submitted requests until it is told to continue.
type hangingVolume struct {
	blockdev.Volume
	has chan *blockdev.Request
}

func (v hangingVolume) Submit(r *blockdev.Request) { v.has <- r }

// TestStop: a stopped listener has disconnected its hosts; only Close waits for the requests that a volume still has
// from them.
func TestStop(t *testing.T) {
	v := hangingVolume{memory(t, 1<<20), make(chan *blockdev.Request, 1)}
	r := newRig(t, rdma.TargetConfig{}, v)
	c := r.connect(t, nil)
	n := namespace(t, c, 1)
	read := make(chan error, 1)
	go func() {
		_, err := n.ReadAt(t.Context(), make([]byte, 4096), 0)
		read <- err
	}()
	has := <-v.has
	stopped := make(chan struct{})
	go func() { r.listener.Stop(); close(stopped) }()
	if _, ok := soon.Receive(stopped); !ok {
		t.Error("Stop waits for the volume")
	}
	if _, ok := soon.Receive(c.Done()); !ok {
		t.Error("the host is still connected")
	}
	closed := make(chan error, 2)
	for range cap(closed) {
		go func() { closed <- r.listener.Close() }()
	}
	if err := <-read; err == nil {
		t.Error("the read succeeds")
	}
	if len(closed) > 0 {
		t.Error("closed while the volume has a request")
	}
	v.Volume.Submit(has)
	for range cap(closed) {
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
}

// TestTransportClosed: nothing is dialled or allocated after Close.
func TestTransportClosed(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	if err := r.transport.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.transport.Alloc(4096); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Alloc: %v", err)
	}
	_, err := host.Connect(t.Context(), host.Config{Transport: r.transport, Remote: r.addr, SubNQN: testNQN})
	if !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Connect: %v", err)
	}
}

// TestTransportClosedMeanwhile: Close waits for a host that is connecting, which either gets its queues or learns of
// the Close.
func TestTransportClosedMeanwhile(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	for range 40 {
		tr := newTransport(t, r.hostNIC, rdma.HostConfig{})
		var connecting sync.WaitGroup
		connecting.Go(func() {
			c, err := host.Connect(context.Background(), host.Config{Transport: tr, Remote: r.addr, SubNQN: testNQN, Queues: 4})
			if err == nil {
				err = c.Close()
			}
			if err != nil && !errors.Is(err, rdma.ErrClosed) {
				t.Error(err)
			}
		})
		time.Sleep(rand.N(5 * time.Millisecond))
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
		connecting.Wait()
	}
}

// TestDeviceRemoval: if this side closes its RNIC, the error doesn't say that the peers disconnected.
func TestDeviceRemoval(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	c := r.connect(t, nil)
	ns := namespace(t, c, 1)
	if err := r.hostNIC.Close(); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	expect := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, rdma.ErrDeviceRemoval) || errors.Is(err, rdma.ErrDisconnected) {
			t.Errorf("%s: %v, want %v", what, err, rdma.ErrDeviceRemoval)
		}
	}
	expect("the controller", c.Err())
	_, err := ns.ReadAt(t.Context(), make([]byte, 512), 0)
	expect("a read", err)
	_, err = host.Connect(t.Context(), host.Config{Transport: r.transport, Remote: r.addr, SubNQN: testNQN})
	expect("a new connection", err)
	_ = c.Close()
	if n := r.transport.Counters().Failed.Load(); n != 0 {
		t.Errorf("%d connections failed, want 0", n)
	}
}

// TestOneOfTwoDevicesRemoved: if one of two RNICs is closed, memory still grows for the other.
func TestOneOfTwoDevicesRemoved(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 32<<20))
	cm := struct{ verbs.ConnectionManager }{r.hostNIC} // of the next connection
	tr := newTransport(t, &cm, rdma.HostConfig{})
	defer tr.Close()
	r.transport = tr
	removed := r.connect(t, nil)
	defer removed.Close()
	other := openNIC(t)
	defer other.Close()
	cm.ConnectionManager = other
	c := r.connect(t, nil)
	defer c.Close()
	if err := r.hostNIC.Close(); err != nil {
		t.Fatal(err)
	}
	<-removed.Done()
	ns := namespace(t, c, 1)
	data, err := c.Alloc(16 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free(data)
	if _, err := ns.WriteAt(t.Context(), data, 0); err != nil {
		t.Error(err)
	}
}

// TestTargetDeviceRemoval: a host isn't counted as lost if the target closes the RNIC under its connections.
func TestTargetDeviceRemoval(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	c := r.connect(t, func(cfg *host.Config) { cfg.Queues = 4 })
	if err := r.targetNIC.Close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the connections to end", func() bool { return r.listener.Counters().Connections.Load() == 0 })
	if n := r.target.Snapshot().Transports[0].LostHosts; n != 0 {
		t.Errorf("%d hosts count as lost that the target has let go", n)
	}
	_ = c.Close()
}

// removedCM is a connection manager that counts how often its only listener is destroyed.
type removedCM struct {
	verbs.ConnectionManager
	destroyed atomic.Int32
}

type removedID struct {
	verbs.CMID
	cm *removedCM
}

func (c *removedCM) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	id, err := c.ConnectionManager.CreateID(func(ev verbs.CMEvent) {
		ev.ID = removedID{ev.ID, c}
		handler(ev)
	})
	return removedID{id, c}, err
}

func (i removedID) Destroy() error {
	i.cm.destroyed.Add(1)
	return i.CMID.Destroy()
}

// TestListenerDeviceRemoval: a listener whose RNIC is removed destroys its identifier, which a provider may wait for, and
// says that it doesn't listen any more. Closing it later is no error, and doesn't destroy the identifier again.
func TestListenerDeviceRemoval(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	var log bytes.Buffer
	cm := &removedCM{ConnectionManager: r.targetNIC}
	l := listen(t, cm, netip.AddrPortFrom(r.addr.Addr(), 4421), r.target, rdma.TargetConfig{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := r.targetNIC.Close(); err != nil {
		t.Fatal(err)
	}
	if n := cm.destroyed.Load(); n != 1 {
		t.Errorf("the identifier was destroyed %d times when its RNIC was removed, want once", n)
	}
	if !strings.Contains(log.String(), "no longer listening") || !strings.Contains(log.String(), rdma.ErrDeviceRemoval.Error()) {
		t.Errorf("the log doesn't say that nothing listens any more:\n%s", log.String())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n := cm.destroyed.Load(); n != 1 {
		t.Errorf("the identifier was destroyed %d times, want once", n)
	}
}

// stoppingCM stops a listener while it answers a connection request: at the beginning, or, if late is set, before it
// accepts.
type stoppingCM struct {
	verbs.ConnectionManager
	late     bool
	listener atomic.Pointer[rdma.Listener]
}

type stoppingID struct {
	verbs.CMID
	cm *stoppingCM
}

func (c *stoppingCM) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	return c.ConnectionManager.CreateID(func(ev verbs.CMEvent) {
		switch {
		case ev.Type != verbs.CMConnectRequest:
		case c.late:
			ev.ID = stoppingID{ev.ID, c}
		default:
			c.listener.Load().Stop()
		}
		handler(ev)
	})
}

func (i stoppingID) SetHandler(h verbs.CMHandler) {
	i.cm.listener.Load().Stop()
	i.CMID.SetHandler(h)
}

// TestRefusedByOneThatStops: a listener that stops refuses a host for lack of resources, as Linux does with whatever has
// no status of its own, and not without a status, or with 0, which is none.
func TestRefusedByOneThatStops(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	for port, late := range map[uint16]bool{4421: false, 4422: true} {
		addr := netip.AddrPortFrom(r.addr.Addr(), port)
		cm := &stoppingCM{ConnectionManager: r.targetNIC, late: late}
		l := listen(t, cm, addr, r.target, rdma.TargetConfig{})
		cm.listener.Store(l)
		_, err := r.transport.Dial(t.Context(), host.QueueAttr{Remote: addr, Size: 32, Sink: noSink{}})
		var reject *rdma.RejectError
		if !errors.As(err, &reject) || reject.Status != rdma.RejectNoResources {
			t.Errorf("late %v: %v, want status %q", late, err, rdma.RejectNoResources)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// farewellCM is a connection manager that counts what is sent on a connection whose peer has disconnected.
type farewellCM struct {
	verbs.ConnectionManager
	ends, late atomic.Int32
}

type farewellID struct {
	verbs.CMID
	cm   *farewellCM
	left *atomic.Bool
}

type farewellQP struct {
	verbs.QP
	id farewellID
}

func (c *farewellCM) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	return c.ConnectionManager.CreateID(func(ev verbs.CMEvent) {
		ev.ID = farewellID{ev.ID, c, new(atomic.Bool)}
		handler(ev)
	})
}

func (i farewellID) SetHandler(h verbs.CMHandler) {
	i.CMID.SetHandler(func(ev verbs.CMEvent) {
		if ev.Type == verbs.CMDisconnected {
			i.cm.ends.Add(1)
			i.left.Store(true)
		}
		h(ev)
	})
}

func (i farewellID) CreateQP(pd verbs.PD, init verbs.QPInitAttr) (verbs.QP, error) {
	qp, err := i.CMID.CreateQP(pd, init)
	return farewellQP{qp, i}, err
}

func (q farewellQP) PostSend(wrs []verbs.SendWR) (int, error) {
	if q.id.left.Load() {
		q.id.cm.late.Add(1)
	}
	return q.QP.PostSend(wrs)
}

// TestNothingAfterDisconnect: a target sends nothing to a host that has disconnected, though its Asynchronous Event
// Requests are outstanding: by then the host has no queue pair any more, which Linux 5.10 warns of each time.
func TestNothingAfterDisconnect(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	cm := &farewellCM{ConnectionManager: r.targetNIC}
	addr := netip.AddrPortFrom(r.addr.Addr(), 4421)
	l := listen(t, cm, addr, r.target, rdma.TargetConfig{})
	const hosts = 20
	for range hosts {
		if err := r.connect(t, func(cfg *host.Config) { cfg.Remote = addr }).Close(); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the end of all connections", func() bool { return l.Counters().Connections.Load() == 0 })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if ends, late := cm.ends.Load(), cm.late.Load(); ends == 0 || late > 0 {
		t.Errorf("%d of %d connections were ended by the host, and then the target sent something on %d", ends, 3*hosts, late)
	}
}

// TestClosedIsNotFailed: connections that the engine ends, because their host has shut its controller down or is to go,
// haven't failed.
func TestClosedIsNotFailed(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	expect := func(what string) {
		t.Helper()
		c := r.listener.Counters()
		waitFor(t, "the end of all connections", func() bool { return c.Connections.Load() == 0 })
		if n := c.Failed.Load(); n != 0 {
			t.Errorf("%s: %d connections failed", what, n)
		}
	}
	for range 20 { // who ends the I/O queues first is a matter of luck
		if err := r.connect(t, nil).Close(); err != nil {
			t.Fatal(err)
		}
	}
	expect("closed by the host")
	c := r.connect(t, nil)
	if err := r.target.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	expect("drained")
	_ = c.Close()
}

// TestEndsOfAHostsQueue: the core is told why a queue has ended, and only what neither side wanted counts as failed.
func TestEndsOfAHostsQueue(t *testing.T) {
	for name, x := range map[string]struct {
		end    func(r *hostileRig)
		is     error // nil: Closed(nil)
		failed uint64
	}{
		"by the host":   {func(r *hostileRig) { _ = r.q.Close() }, nil, 0},
		"by the target": {func(r *hostileRig) { _ = r.p.id.Disconnect() }, rdma.ErrDisconnected, 0},
		"by a fault":    {func(r *hostileRig) { r.submit(0); r.answer(1, 0) }, rdma.ErrProtocol, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newHostileRig(t)
				defer r.close()
				r.redial(hostileSize, 0)
				c := r.tr.Counters()
				if c.Connections.Load() != 1 || c.Accepted.Load() != 2 {
					t.Errorf("%d connections of %d", c.Connections.Load(), c.Accepted.Load())
				}
				x.end(r)
				err := <-r.sink.closed
				var at *rdma.ConnError
				if !errors.Is(err, x.is) || x.is != nil && (!errors.As(err, &at) || at.Peer != simNVMe || at.QID != 1) {
					t.Errorf("ended because of %v, want %v", err, x.is)
				}
				if c.Connections.Load() != 0 || c.Failed.Load() != x.failed {
					t.Errorf("%d connections are left, %d failed", c.Connections.Load(), c.Failed.Load())
				}
			})
		})
	}
}
