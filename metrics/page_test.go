package metrics

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestPageCommandsUnderWay: a controller's commands in flight are those that were sent and not answered. One that is
// cancelled while it waits for its turn never was one of them. The target's page shows those that it has.
func TestPageCommandsUnderWay(t *testing.T) {
	p := &pair{t: t, set: New()}
	v, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	p.must(err)
	frozen := wrap.NewFreezer(v)
	t.Cleanup(func() { frozen.Close() })
	tgt, err := target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: frozen}},
	}}})
	p.must(err)
	t.Cleanup(func() { tgt.Close(context.Background()) })
	p.listenTCP(tgt)
	tr, err := tcp.NewTransport(tcp.HostConfig{})
	p.must(err)
	t.Cleanup(func() { tr.Close() })
	c, err := host.Connect(t.Context(), host.Config{
		Transport: tr, Remote: p.tcpAddr, SubNQN: testNQN, HostNQN: hostNQN, Queues: 1, QueueSize: 2,
	})
	p.must(err)
	t.Cleanup(func() { c.Close() })
	p.set.AddController(c)
	ns, err := c.Namespace(t.Context(), 1)
	p.must(err)

	served := New()
	served.AddTarget(tgt)
	inFlight := func() int { return p.set.status().IO.InFlight }
	var reads sync.WaitGroup
	frozen.Freeze()
	reads.Go(func() {
		if _, err := ns.ReadAt(t.Context(), make([]byte, 4096), 0); err != nil {
			t.Error(err)
		}
	})
	if !soon.Until(func() bool { return inFlight() == 1 }) {
		t.Fatalf("%d commands are in flight, want 1", inFlight())
	}
	if !soon.Until(func() bool { return served.status().IO.InFlight == 1 }) {
		t.Errorf("the target's page shows %d commands in flight, want 1", served.status().IO.InFlight)
	}
	waiting, cancel := context.WithCancel(t.Context())
	reads.Go(func() {
		if _, err := ns.ReadAt(waiting, make([]byte, 4096), 0); !errors.Is(err, context.Canceled) {
			t.Errorf("the command that is cancelled ends with %v", err)
		}
	})
	q := c.Queues()[0].Counters()
	soon.Until(func() bool { return q.Waited.Load() == 1 })
	cancel()
	if !soon.Until(func() bool { return q.Cut.Load() == 1 }) {
		t.Fatal("no command was cut")
	}
	if n := inFlight(); n != 1 {
		t.Errorf("%d commands are in flight when another was cancelled, want 1", n)
	}
	frozen.Thaw()
	reads.Wait()
	if n := inFlight(); n != 0 {
		t.Errorf("%d commands are in flight when all have ended, want 0", n)
	}
}

// TestTargetPage: the status page of a target shows what its hosts have moved: in all, of each volume and by each host;
// and that nothing is under way, though each host has left an Asynchronous Event Request with its controller.
func TestTargetPage(t *testing.T) {
	const reads, writes, size = 5, 3, 8 << 10 // of a host (use)
	p := newPair(t)
	p.use(p.connectRDMA())
	p.use(p.connectTCP())
	p.set.AddReady(func() error { return errors.New("draining") })
	st := p.set.status()
	if !soon.Until(func() bool {
		st = p.set.status()
		return st.IO.InFlight+st.Volumes[0].IO.InFlight+st.Peers[0].IO.InFlight+st.Peers[1].IO.InFlight == 0
	}) {
		t.Errorf("commands are shown as in flight: %+v", st)
	}
	if st.Host || st.Problem != "draining" || st.Packets.Sent == 0 || len(st.Volumes) != 1 || len(st.Peers) != 2 || st.Peers[0].Key == st.Peers[1].Key {
		t.Fatalf("the page shows %+v", st)
	}
	for _, x := range []struct {
		of    string
		io    *pageIO
		hosts uint64
	}{
		{"all", &st.IO, 2}, {"the volume", &st.Volumes[0].IO, 2}, {"a host", &st.Peers[0].IO, 1}, {"a host", &st.Peers[1].IO, 1},
	} {
		if r, w := &x.io.Read, &x.io.Write; r.Ops != x.hosts*reads || w.Ops != x.hosts*writes ||
			r.Bytes != x.hosts*reads*size || w.Bytes != x.hosts*writes*size || x.io.Errors != 0 {
			t.Errorf("of %s it shows %+v", x.of, *x.io)
		}
	}
	var slower uint64
	for _, n := range st.IO.Read.Buckets {
		slower += n
	}
	if slower != st.IO.Read.Ops {
		t.Errorf("of %d reads %d are in its picture of latencies", st.IO.Read.Ops, slower)
	}
}

// TestHostPage: the status page of a host shows what it has moved, in all and by each controller.
func TestHostPage(t *testing.T) {
	p := newPair(t)
	set := New()
	for _, c := range []*host.Controller{p.connectRDMA(), p.connectTCP()} {
		set.AddController(c)
		ns, err := c.Namespace(t.Context(), 1)
		p.must(err)
		before := set.status()
		_, err = ns.ReadAt(t.Context(), make([]byte, 64<<10), 0)
		p.must(err)
		_, err = ns.WriteAt(t.Context(), make([]byte, 16<<10), 0)
		p.must(err)
		st := set.status()
		if r, w := st.IO.Read.Bytes-before.IO.Read.Bytes, st.IO.Write.Bytes-before.IO.Write.Bytes; !st.Host || r != 64<<10 || w != 16<<10 {
			t.Errorf("the page shows %d bytes read and %d written, want 64 and 16 KiB", r, w)
		}
	}
	st := set.status()
	if len(st.Peers) != 2 {
		t.Fatalf("the page shows %+v", st)
	}
	if a, b := &st.Peers[0].IO, &st.Peers[1].IO; a.Read.Bytes+b.Read.Bytes != st.IO.Read.Bytes || a.Write.Bytes+b.Write.Bytes != st.IO.Write.Bytes ||
		min(a.Read.Bytes, b.Read.Bytes) < 64<<10 || min(a.Write.Bytes, b.Write.Bytes) < 16<<10 {
		t.Errorf("the page shows %+v and %+v, and in all %+v", *a, *b, st.IO)
	}
}

// TestManyPeers: of many hosts the page shows those that have moved the most data.
func TestManyPeers(t *testing.T) {
	s, _ := withHosts(t, maxPeers+2)
	if st := s.status(); len(st.Peers) != maxPeers || st.More != 2 {
		t.Errorf("%d peers are shown, and %d aren't", len(st.Peers), st.More)
	}
}
