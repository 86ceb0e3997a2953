package tcp

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// another is another loopback address.
var another = netip.MustParseAddr("127.0.0.77")

// rawIO makes an admin queue and an I/O queue of size entries from addr.
func rawIO(t *testing.T, tt *testTarget, addr netip.Addr, size int) (admin, io *raw) {
	t.Helper()
	return rawIOBy(t, func() *raw { return rawFrom(t, tt, addr) }, size)
}

// rawIOBy is rawIO for a host that connects by dial.
func rawIOBy(t *testing.T, dial func() *raw, size int) (admin, io *raw) {
	t.Helper()
	connect := func(p *raw, qid, cntlid uint16, size int) uint16 {
		t.Helper()
		p.initialize(pdu.ICReq{})
		var cmd nvme.Command
		cmd.SetConnect(qid, uint16(size-1), 0, 0)
		d := nvme.ConnectData{CNTLID: cntlid, SubNQN: testNQN, HostNQN: hostNQN, HostID: nvme.HostID{2}}
		data, err := d.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		cmd.SGL1().SetBlock(nvme.SGLInCapsule, 0, uint32(len(data)))
		p.send(p.capsule(cmd, data))
		cqe := p.response()
		if !cqe.Status().OK() {
			t.Fatalf("Connect: %v", cqe.Status())
		}
		return nvme.ConnectResult(cqe.DW0()).CNTLID()
	}
	admin, io = dial(), dial()
	cntlid := connect(admin, 0, nvme.CNTLIDDynamic, 32)
	admin.enable()
	connect(io, 1, cntlid, size)
	return admin, io
}

// A host that asks to write, and never sends its data, leaves memory to others, and its
// connection ends.
func TestHostThatBringsNoData(t *testing.T) {
	virtually(t, testHostThatBringsNoData)
}

func testHostThatBringsNoData(t *testing.T, n socket.Network) {
	const size, depth = 60 << 10, 32 // which the volume doesn't lend
	tt := newTestTarget(t, TargetConfig{
		MaxTransfer: 64 << 10, Memory: 512 << 10, PeerMemory: 256 << 10, BusyPoll: NoBusyPoll, Network: n,
	})
	_, stalled := rawIO(t, tt, another, depth)
	for cid := range uint16(depth - 1) {
		cmd := ioCommand(nvme.OpWrite, 0, size)
		cmd.SetCID(cid)
		cmd.SGL1().SetBlock(nvme.SGLTransport, 0, size)
		stalled.send(stalled.capsule(cmd, nil))
	}
	for range 4 {
		stalled.expect(pdu.TypeR2T) // and no fifth one
	}
	honest := newPair(t, tt.Addr(), clientOptions{size: 8, host: HostConfig{BusyPoll: NoBusyPoll, Network: n}})
	for range 20 {
		honest.io.must(ioCommand(nvme.OpWrite, 0, size), randomBytes(1, size))
	}
	stalled.closed()
	for {
		err, ok := soon.Receive(tt.errs)
		if !ok {
			t.Fatal("nobody is told that the host has stalled")
		}
		if errors.Is(err, ErrStalled) {
			break
		}
	}
	if waits := tt.Counters().MemoryWaits.Load(); waits == 0 {
		t.Error("no command of the greedy host had to wait")
	}
	honest.io.must(ioCommand(nvme.OpWrite, 0, size), randomBytes(1, size))
}

// connOf returns the target's side of the connection of p.
func connOf(t *testing.T, tt *testTarget, p *raw) *targetConn {
	t.Helper()
	tt.mu.Lock()
	defer tt.mu.Unlock()
	for c := range tt.conns {
		if c.attr.Remote.String() == p.LocalAddr().String() {
			return c
		}
	}
	t.Fatal("the target doesn't know the connection")
	return nil
}

// A slow host that does send its data, a little at a time, is waited for, but not forever: others may need the
// namespace to themselves. The test, not the clock, says when the limit is over: each time between two pieces.
func TestHostThatBringsDataSlowly(t *testing.T) {
	const size = 64 << 10
	for piece, ends := range map[int]bool{8 << 10: false, 512: true} {
		tt := newTestTarget(t, TargetConfig{MaxTransfer: size, DataTimeout: time.Hour})
		_, slow := rawIO(t, tt, another, 8)
		cmd := ioCommand(nvme.OpWrite, 0, size)
		cmd.SetCID(7)
		cmd.SGL1().SetBlock(nvme.SGLTransport, 0, size)
		slow.send(slow.capsule(cmd, nil))
		r2t, err := pdu.ParseR2T(slow.expect(pdu.TypeR2T))
		if err != nil {
			t.Fatal(err)
		}
		c, data := connOf(t, tt, slow), randomBytes(1, size)
		for off := 0; off < size && c.asked.Load() == nil; off += piece {
			var flags uint8
			if off+piece == size {
				flags = pdu.FlagLast
			}
			before := c.progress.Load()
			slow.send(slow.data(pdu.Data{
				Header: pdu.Header{Type: pdu.TypeH2CData, Flags: flags}, CCCID: 7, TTAG: r2t.TTAG, DATAO: uint32(off),
			}, data[off:off+piece]))
			waitFor(t, "progress", func() bool { return c.progress.Load() != before })
			c.checkProgress()
		}
		switch err := c.asked.Load(); {
		case ends && (err == nil || !errors.Is(*err, ErrStalled)):
			t.Errorf("%d bytes at a time: the connection hasn't ended", piece)
		case !ends:
			if cqe := slow.response(); !cqe.Status().OK() {
				t.Errorf("write: %v", cqe.Status())
			}
			for range 3 { // with nothing left to wait for
				c.checkProgress()
			}
			if err := c.asked.Load(); err != nil {
				t.Errorf("an idle connection ends: %v", *err)
			}
		}
	}
}

// A connection that has been idle is watched again: a host that brings no data then is given up too.
func TestIdleThenStalled(t *testing.T) {
	virtually(t, func(t *testing.T, n socket.Network) {
		const limit = time.Second
		tt := newTestTarget(t, TargetConfig{DataTimeout: limit, BusyPoll: NoBusyPoll, Network: n})
		_, p := rawIO(t, tt, another, 8)
		p.bring(p.asked(1), 1)
		if cqe := p.response(); !cqe.Status().OK() {
			t.Errorf("write: %v", cqe.Status())
		}
		time.Sleep(10 * limit)
		p.asked(2)
		began := time.Now()
		p.closed()
		if took := time.Since(began); took > 3*limit {
			t.Errorf("it is given up after %v", took)
		}
	})
}

// A host whose writes follow each other without a pause, each completed in time, is waited for, however long that goes
// on.
func TestAlwaysWriting(t *testing.T) {
	virtually(t, func(t *testing.T, n socket.Network) {
		const limit = time.Second
		tt := newTestTarget(t, TargetConfig{DataTimeout: limit, BusyPoll: NoBusyPoll, Network: n})
		_, p := rawIO(t, tt, another, 8)
		ttag := p.asked(0)
		for cid := range uint16(3 * mostChecks) {
			next := p.asked(cid + 1)
			p.bring(ttag, cid)
			if cqe := p.response(); !cqe.Status().OK() {
				t.Fatalf("write: %v", cqe.Status())
			}
			ttag = next
			time.Sleep(limit)
		}
	})
}

// asked begins a write of a block, and returns the TTAG of the R2T.
func (p *raw) asked(cid uint16) (ttag uint16) {
	p.t.Helper()
	cmd := ioCommand(nvme.OpWrite, 0, block)
	cmd.SetCID(cid)
	cmd.SGL1().SetBlock(nvme.SGLTransport, 0, block)
	p.send(p.capsule(cmd, nil))
	r2t, err := pdu.ParseR2T(p.expect(pdu.TypeR2T))
	if err != nil {
		p.t.Fatal(err)
	}
	return r2t.TTAG
}

// bring sends the block that an R2T asked for.
func (p *raw) bring(ttag, cid uint16) {
	p.t.Helper()
	h := pdu.Header{Type: pdu.TypeH2CData, Flags: pdu.FlagLast}
	p.send(p.data(pdu.Data{Header: h, CCCID: cid, TTAG: ttag}, make([]byte, block)))
}

// One address can't have all connections.
func TestPeerConnections(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{MaxConns: 4, MaxPeerConns: 2})
	for range 2 {
		rawFrom(t, tt, another).initialize(pdu.ICReq{})
	}
	rawFrom(t, tt, another).closed()
	if err := <-tt.errs; !errors.Is(err, ErrTooMany) {
		t.Errorf("%v, want ErrTooMany", err)
	}
	rawFrom(t, tt, netip.Addr{}).initialize(pdu.ICReq{})
	if n, limited := tt.Counters().Rejected.Load(), tt.Counters().Limited.Load(); n != 1 || limited != 1 {
		t.Errorf("%d refused, %d of them for a limit", n, limited)
	}
}

// Addresses that connect as often as they can and send nothing, or nothing after ICReq, don't keep another
// from connecting at its first attempt.
func TestSilentConnections(t *testing.T) {
	const limit, attackers = 32, 4
	vol := newTestVolume(t)
	tt := newLimitedTarget(t, TargetConfig{MaxConns: limit, MaxPeerConns: limit / attackers}, vol, target.Limits{Connections: limit})
	attack := func(per int) {
		for k := range attackers {
			for i := range per {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(k))}}
				c, err := d.Dial("tcp", tt.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				if i%2 == 1 {
					_, _ = c.Write(pdu.ICReq{}.Append(nil)) // it may be closed already
				}
			}
		}
	}
	attack(limit / attackers)
	var hosts []*raw
	for range 3 {
		admin, io := rawIO(t, tt, another, 32)
		hosts = append(hosts, admin, io)
		attack(2)
	}
	for _, h := range hosts {
		var cmd nvme.Command
		cmd.SetPropertyGet(nvme.PropCSTS)
		h.send(h.capsule(cmd, nil))
		_ = h.response()
	}
	if n := tt.engine.Snapshot().Transports[0].GaveWay; n == 0 {
		t.Error("nobody gave way: nothing is shown")
	}
}

// A host that sends commands, and never takes the data that it asked for, is given up after a while.
func TestHostThatReadsNothing(t *testing.T) {
	const size, depth = 64 << 10, 32
	tt := newTestTarget(t, TargetConfig{MaxTransfer: size})
	_, slow := rawIO(t, tt, another, depth)
	c := connOf(t, tt, slow)
	c.w.mu.Lock()
	c.w.stall = 200 * time.Millisecond // instead of half a minute
	c.w.mu.Unlock()
	go func() {
		cmd := ioCommand(nvme.OpRead, 0, size)
		cmd.SGL1().SetBlock(nvme.SGLTransport, 0, size)
		for cid := uint16(0); ; cid++ {
			cmd.SetCID(cid)
			if _, err := slow.Write(slow.capsule(cmd, nil)); err != nil {
				return // the connection's end
			}
		}
	}()
	honest := newPair(t, tt.Addr(), clientOptions{size: 8})
	waitFor(t, "end of the connection", func() bool {
		honest.io.must(ioCommand(nvme.OpWrite, 0, size), randomBytes(1, size))
		return len(tt.errs) > 0
	})
	var op *ConnError
	if err := <-tt.errs; !errors.As(err, &op) || op.Stage != "send" || !errors.Is(err, ErrStalled) {
		t.Errorf("%v, want an error of sending to who has stalled", err)
	}
}

// A host that takes its data a little at a time, so that something always moves, is given up as well: until its data is
// out it holds memory, and whatever needs the namespace to itself waits.
func TestHostThatReadsSlowly(t *testing.T) {
	const size, stall = 1 << 20, 200 * time.Millisecond
	tt := newTestTarget(t, TargetConfig{MaxTransfer: size})
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { // a small window opens a little at a time
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
	}}
	_, slow := rawIOBy(t, func() *raw {
		c, err := d.Dial("tcp", tt.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return newRaw(t, c)
	}, 8)
	c := connOf(t, tt, slow)
	_ = c.conn.(*socket.TCP).SetWriteBuffer(4096)
	c.w.mu.Lock()
	c.w.stall = stall // instead of half a minute
	c.w.mu.Unlock()
	cmd := ioCommand(nvme.OpRead, 0, size)
	cmd.SGL1().SetBlock(nvme.SGLTransport, 0, size)
	slow.send(slow.capsule(cmd, nil))
	piece := make([]byte, size/1000) // all of it would take 50 times as long as nothing may be taken
	for n := 0; n < size && c.w.sendError() == nil; time.Sleep(stall / 20) {
		k, err := slow.Read(piece)
		if err != nil {
			break
		}
		n += k
	}
	if err := c.w.sendError(); !errors.Is(err, ErrStalled) {
		t.Errorf("%v, want ErrStalled", err)
	}
}
