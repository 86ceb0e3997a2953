package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// replayOther is a host that isn't recorded, and whose work nothing may disturb.
var replayOther = netip.MustParseAddrPort("10.0.0.3:4791")

// recorded is a packet that passed, without its ICRC, which depends on its sender's port.
type recorded struct {
	src, dst netip.Addr
	payload  []byte
}

// isRequest reports whether p is a request, rather than a response or a notification.
func isRequest(p *wire.Packet) bool {
	return !p.Opcode.IsResponse() && p.Opcode != wire.CNP && !p.Opcode.IsUD()
}

// at is the position of a queue pair: the last PSNs of the requests and of the responses that were sent to it.
type at struct {
	dst   netip.Addr
	qp    wire.QPN
	reply bool // not a request
}

// recorder is the attacker: it reads the wire, and sends from any address.
type recorder struct {
	t     *testing.T
	conns map[netip.Addr]*simnet.Endpoint // that send from that address, each from a port of its own

	mu     sync.Mutex
	on     bool
	lossy  bool // lose some, so that NAKs and repetitions are recorded too
	count  int
	tape   []recorded
	places map[at]wire.PSN
}

func newRecorder(t *testing.T, n *simnet.Network) *recorder {
	t.Helper()
	r := &recorder{t: t, conns: map[netip.Addr]*simnet.Endpoint{}, places: map[at]wire.PSN{}}
	for _, a := range []netip.Addr{simHost.Addr(), simTarget.Addr()} {
		conn, err := n.Listen(netip.AddrPortFrom(a, 0), simnet.Config{MTU: 9000})
		if err != nil {
			t.Fatal(err)
		}
		r.conns[a] = conn
	}
	n.SetFilter(r.pass)
	return r
}

// pass is the network's filter.
func (r *recorder) pass(d *simnet.Datagram) simnet.Action {
	const oneIn = 23
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on || d.Src.Addr() == replayOther.Addr() || d.Dst.Addr() == replayOther.Addr() {
		return simnet.Action{}
	}
	var p wire.Packet
	if err := wire.Parse(&p, d.Payload); err != nil {
		r.t.Errorf("recorded %x: %v", d.Payload, err)
	}
	r.tape = append(r.tape, recorded{d.Src.Addr(), d.Dst.Addr(), bytes.Clone(d.Payload)})
	r.places[at{d.Dst.Addr(), p.DestQP, !isRequest(&p)}] = p.PSN
	r.count++
	return simnet.Action{Drop: r.lossy && r.count%oneIn == 0 && !p.Opcode.IsUD()}
}

// record starts a new tape while work runs, and returns it.
func (r *recorder) record(lossy bool, work func()) []recorded {
	r.mu.Lock()
	r.on, r.lossy, r.tape = true, lossy, nil
	clear(r.places)
	r.mu.Unlock()
	work()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = false
	return r.tape
}

// replay sends a tape again; alter may change each packet or leave it out. It returns how many packets went to the
// connections of an address, and how many of them were requests.
func (r *recorder) replay(tape []recorded, alter func(dst netip.Addr, p *wire.Packet) bool) (all, requests map[netip.Addr]uint64) {
	r.t.Helper()
	all, requests = map[netip.Addr]uint64{}, map[netip.Addr]uint64{}
	for i := range tape {
		var p wire.Packet
		if err := wire.Parse(&p, tape[i].payload); err != nil {
			r.t.Fatal(err)
		}
		dst := tape[i].dst
		if alter != nil && !alter(dst, &p) {
			continue
		}
		conn, to := r.conns[tape[i].src], netip.AddrPortFrom(dst, wire.Port)
		b := p.Append(nil, wire.NewFlow(conn.LocalAddr(), to), 0)
		if _, err := conn.Send([]udp.Train{{Dst: to, Parts: [][]byte{b}, Bytes: len(b), SegmentSize: len(b)}}); err != nil {
			r.t.Fatal(err)
		}
		if !p.Opcode.IsUD() {
			all[dst]++
		}
		if isRequest(&p) {
			requests[dst]++
		}
		time.Sleep(20 * time.Microsecond) // no more than a receive buffer holds
	}
	time.Sleep(100 * time.Millisecond)
	return all, requests
}

// replayRig is a target with two hosts on a simulated network, of which one is recorded.
type replayRig struct {
	t        *testing.T
	rec      *recorder
	tn       *simNIC
	listener *rdma.Listener
	target   *target.Target
	victim   *replayHost
	other    *replayHost
}

// replayHost is a host with one controller.
type replayHost struct {
	t     *testing.T
	nic   *simNIC
	tr    *rdma.Transport
	ctrl  *host.Controller
	first int64 // where its part of the volume begins
	buf   []byte
	want  []byte // its part of the volume
}

// What each host has.
const (
	replayPart   = 256 << 10 // bytes of the volume
	replayQueues = 4
)

func newReplayHost(t *testing.T, n *simnet.Network, addr netip.AddrPort, first int64) *replayHost {
	t.Helper()
	h := &replayHost{t: t, nic: newSimNIC(t, n, addr), first: first, want: make([]byte, replayPart)}
	var err error
	h.tr = newTransport(t, h.nic, rdma.HostConfig{})
	if h.buf, err = h.tr.Alloc(replayPart); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *replayHost) connect() {
	h.t.Helper()
	var err error
	h.ctrl, err = host.Connect(context.Background(), host.Config{
		Transport: h.tr, Remote: simNVMe, SubNQN: testNQN, Queues: replayQueues, QueueSize: 32, KATO: time.Hour,
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *replayHost) close() {
	h.t.Helper()
	err := h.ctrl.Close()
	h.tr.Free(h.buf)
	if err := errors.Join(err, h.tr.Close()); err != nil {
		h.t.Error(err)
	}
	h.nic.close(h.t)
}

// work writes and reads its part of the volume in pieces of many sizes over all queues.
func (h *replayHost) work(stamp byte) {
	h.t.Helper()
	ns, err := h.ctrl.Namespace(context.Background(), 1)
	if err != nil {
		h.t.Fatal(err)
	}
	sizes := []int{512, 4096, 1536, 65536, 8192, 512, 20480, 4096}
	for off, i := 0, 0; ; i++ {
		n := sizes[i%len(sizes)]
		if off+n > replayPart {
			break
		}
		b := h.buf[off : off+n]
		for k := range b {
			b[k] = stamp + byte((off+k)/512)
		}
		copy(h.want[off:], b)
		if _, err := ns.WriteAt(context.Background(), b, h.first+int64(off)); err != nil {
			h.t.Fatal(err)
		}
		clear(b)
		if _, err := ns.ReadAt(context.Background(), b, h.first+int64(off)); err != nil {
			h.t.Fatal(err)
		}
		if !bytes.Equal(b, h.want[off:off+n]) {
			h.t.Fatalf("%d bytes at %d came back altered", n, off)
		}
		off += n
	}
}

// untouched fails the test if the memory of h has changed since protect.
func (h *replayHost) untouched(what string) {
	h.t.Helper()
	if i := slices.IndexFunc(h.buf, func(b byte) bool { return b != 0xee }); i >= 0 {
		h.t.Errorf("%s: the host's memory was written at %d", what, i)
	}
}

// stored fails the test if h's part of the volume, as read by reader, is not what h wrote last.
func (h *replayHost) stored(what string, reader *replayHost) {
	h.t.Helper()
	ns, err := reader.ctrl.Namespace(context.Background(), 1)
	if err != nil {
		h.t.Fatal(err)
	}
	got := make([]byte, replayPart)
	if _, err := ns.ReadAt(context.Background(), got, h.first); err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
	if !bytes.Equal(got, h.want) {
		h.t.Errorf("%s: the volume has changed", what)
	}
}

func newReplayRig(t *testing.T) *replayRig {
	t.Helper()
	n := simNetwork(false)
	r := &replayRig{t: t, tn: newSimNIC(t, n, simTarget)}
	var err error
	r.target, err = target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: memory(t, 2*replayPart)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	r.listener = listen(t, r.tn, simNVMe, r.target, rdma.TargetConfig{Memory: 8 << 20})
	r.rec = newRecorder(t, n)
	r.victim = newReplayHost(t, n, simHost, 0)
	r.other = newReplayHost(t, n, replayOther, replayPart)
	return r
}

// protect fills the memory of both hosts with a pattern that must not change.
func (r *replayRig) protect() {
	for _, h := range []*replayHost{r.victim, r.other} {
		for i := range h.buf {
			h.buf[i] = 0xee
		}
	}
}

func (r *replayRig) close() {
	r.t.Helper()
	r.victim.close()
	r.other.close()
	if err := errors.Join(r.listener.Close(), r.target.Close(context.Background())); err != nil {
		r.t.Error(err)
	}
	r.tn.close(r.t)
	for _, c := range r.rec.conns {
		_ = c.Close()
	}
}

// check is what must hold after each attack.
func (r *replayRig) check(what string) {
	r.t.Helper()
	for _, h := range []*replayHost{r.victim, r.other} {
		select {
		case <-h.ctrl.Done():
			r.t.Fatalf("%s: the connection ended: %v", what, h.ctrl.Err())
		default:
		}
		h.untouched(what)
	}
	r.victim.stored(what, r.other)
	r.other.stored(what, r.victim)
	if n, want := r.listener.Counters().Connections.Load(), int64(2*(1+replayQueues)); n != want {
		r.t.Errorf("%s: the target has %d connections, want %d", what, n, want)
	}
	if n := r.tn.Counters().HalfOpen.Load(); n != 0 {
		r.t.Errorf("%s: %d half-open connections", what, n)
	}
}

// counting starts to watch counters of the target and the victim. The function that it returns fails the test if their
// sum, by address, has not grown by want.
func (r *replayRig) counting(which ...roce.Counter) func(what string, want map[netip.Addr]uint64) {
	sums := func() map[netip.Addr]uint64 {
		m := map[netip.Addr]uint64{}
		for a, d := range map[netip.Addr]*roce.Device{simTarget.Addr(): r.tn.dev, simHost.Addr(): r.victim.nic.dev} {
			c := d.Counters()
			for _, i := range which {
				m[a] += c[i]
			}
		}
		return m
	}
	before := sums()
	return func(what string, want map[netip.Addr]uint64) {
		r.t.Helper()
		after := sums()
		for a, n := range want {
			if grown := after[a] - before[a]; grown != n {
				r.t.Errorf("%s: %s counts %d packets as %v, want %d", what, a, grown, which, n)
			}
		}
	}
}

// TestReplay replays recorded packets, each of which was valid when it was new: while the connection lives, after its
// end, and to the connections that follow it. No byte changes in the volume or in a host's memory, no connection ends,
// and every request is counted.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplayRig(t)
		defer r.close()
		r.other.connect()
		r.other.work('o')
		tape := r.rec.record(true, func() {
			r.victim.connect()
			r.victim.work('a')
		})
		r.complete(tape)
		r.victim.work('b') // what was written before would show
		r.protect()
		r.live(tape)
		if err := r.victim.ctrl.Close(); err != nil {
			t.Fatal(err)
		}
		r.afterEnd(tape)
	})
}

// complete fails the test if a kind of packet is missing on the tape.
func (r *replayRig) complete(tape []recorded) {
	kinds := map[wire.Kind]int{}
	mads := 0
	for i := range tape {
		op := wire.Opcode(tape[i].payload[0])
		kinds[op.Kind()]++
		if op.IsUD() {
			mads++
		}
	}
	for _, k := range []wire.Kind{wire.KindSend, wire.KindWrite, wire.KindReadRequest, wire.KindReadResponse, wire.KindAcknowledge,
		wire.KindSelectiveAck, wire.KindWriteSend} {
		if kinds[k] == 0 {
			r.t.Errorf("no packet of kind %d recorded", k)
		}
	}
	if mads < 3*(1+replayQueues) {
		r.t.Errorf("%d management datagrams recorded, want REQ, REP and RTU of each connection", mads)
	}
}

// live replays to the connection that was recorded.
func (r *replayRig) live(tape []recorded) {
	counted := r.counting(roce.DuplicateRequest)
	_, requests := r.rec.replay(tape, nil)
	counted("while it lives", requests)
	r.check("while it lives")

	var attack sync.WaitGroup
	attack.Go(func() { r.rec.replay(tape, nil) })
	for i := range byte(3) {
		r.victim.work('c' + i)
		r.other.work('p' + i)
	}
	attack.Wait()
	r.protect()
	r.check("while it works")
}

// afterEnd replays after the connection has ended: soon, after its TIMEWAIT, and to the queue pairs that its host and
// the target use then.
func (r *replayRig) afterEnd(tape []recorded) {
	for _, after := range []time.Duration{time.Second, time.Hour} {
		time.Sleep(after)
		counted := r.counting(roce.NoQP)
		packets, _ := r.rec.replay(tape, nil)
		counted("after its end", packets)
		time.Sleep(time.Minute) // the requests leave connections half open, which end by then
	}
	r.rec.record(false, func() {
		r.victim.connect()
		r.victim.work('x')
	})
	r.protect()
	r.check("after its end")
	counted := r.counting(roce.NoQP)
	packets, _ := r.rec.replay(tape, nil)
	counted("beside the next ones", packets)
	time.Sleep(time.Minute)
	r.check("beside the next ones")
	r.toOthers(tape)
	r.deadKey(tape)
}

// toOthers replays as if the queue pairs of the current connections had the numbers of the recorded ones: they start
// with other PSNs.
func (r *replayRig) toOthers(tape []recorded) {
	for to := range r.rec.places {
		if to.reply || to.qp == wire.QP1 {
			continue
		}
		counted := r.counting(roce.DuplicateRequest, roce.OutOfSequence)
		_, requests := r.rec.replay(tape, func(dst netip.Addr, p *wire.Packet) bool {
			p.DestQP = to.qp
			return dst == to.dst && !p.Opcode.IsUD() && !r.rec.near(to, p)
		})
		counted("to the next ones", requests)
		r.check("to the next ones")
	}
	r.victim.work('y')
	r.other.work('y')
	r.protect()
}

// deadKey replays a WRITE, and the SEND after it, to a queue pair that expects exactly that PSN: its key became invalid
// with the command that it was lent for. That costs the connection, which anybody who reads the wire can end anyway,
// and nothing else.
func (r *replayRig) deadKey(tape []recorded) {
	var write wire.Packet
	for i := range tape {
		if err := wire.Parse(&write, tape[i].payload); err != nil {
			r.t.Fatal(err)
		}
		if write.Opcode.Kind() == wire.KindWriteSend {
			tape = tape[i : i+1]
			break
		}
	}
	r.rec.record(false, func() { r.victim.work('z') })
	r.protect()
	var qp wire.QPN
	for to := range r.rec.places {
		if to.dst == simHost.Addr() && to.qp != wire.QP1 && !to.reply {
			qp = to.qp
		}
	}
	next := r.rec.places[at{simHost.Addr(), qp, false}].Next()
	counted := r.counting(roce.RespRemoteAccessErrors)
	_, requests := r.rec.replay(tape, func(_ netip.Addr, p *wire.Packet) bool {
		p.DestQP, p.PSN = qp, next
		return true
	})
	counted("a dead key", requests)
	if len(requests) != 1 {
		r.t.Errorf("%d addresses were sent a dead key", len(requests))
	}
	<-r.victim.ctrl.Done()
	r.victim.untouched("a dead key")
	r.victim.stored("a dead key", r.other)
	_ = r.victim.ctrl.Close()
	r.victim.connect()
	r.check("after a dead key")
}

// near reports whether by chance the PSN of p is one that the queue pair may expect.
func (r *recorder) near(to at, p *wire.Packet) bool {
	to.reply = !isRequest(p)
	const most = 1 << 14
	psn, ok := r.places[to]
	return ok && max(psn.Diff(p.PSN), p.PSN.Diff(psn)) < most
}
