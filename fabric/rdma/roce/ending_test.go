package roce

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// endings are the ways in which a consumer ends a queue pair.
var endings = map[string]func(*Device, verbs.QP){
	"destroy": func(_ *Device, q verbs.QP) { _ = q.Destroy() },
	"reset":   func(_ *Device, q verbs.QP) { _ = q.Modify(verbs.QPAttr{State: verbs.Reset}) },
	"error":   func(_ *Device, q verbs.QP) { _ = q.Modify(verbs.QPAttr{State: verbs.Err}) },
	"close": func(d *Device, _ verbs.QP) {
		go d.Close() // not from a handler: it waits for the engine's end
		time.Sleep(time.Millisecond)
	},
}

// endOnMessage has a send a message to b, which ends its queue pair in the handler that reports the message.
func (p *pair) endOnMessage(end func(*Device, verbs.QP)) {
	p.t.Helper()
	a, b := p.a, p.b
	var q verbs.QP
	c, err := b.dev.CreateCQ(8, func(verbs.CQ) { end(b.dev, q) })
	check(p.t, err)
	q, err = b.pd.CreateQP(verbs.QPInitAttr{
		Type: verbs.RC, SendCQ: c, RecvCQ: c, MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1,
	})
	check(p.t, err)
	a.qp, b.qp = a.newQP(p.cfg), q
	p.connect(a, b)
	c.ReqNotify()
	b.recv(1, b.sge(0, 4000)...)
	a.post(verbs.SendWR{WRID: 2, Opcode: verbs.WRSend, SGList: a.sge(0, 4000)})
}

// TestLastAnswerLeaves: a consumer that ends its queue pair as soon as it sees a message, in the handler that reports
// it, doesn't leave the peer without the acknowledgement.
func TestLastAnswerLeaves(t *testing.T) {
	for name, end := range endings {
		for _, options := range []uint32{0, OptionAckAlong} {
			t.Run(fmt.Sprintf("%s, options %#x", name, options), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPair(t, pairConfig{options: options})
					p.endOnMessage(end)
					p.a.want(2, verbs.WCSuccess)
					time.Sleep(time.Second) // until Close has returned
				})
			})
		}
	}
}

// heldConn is a socket whose Send can be made to wait.
type heldConn struct {
	udp.Conn
	hold chan (<-chan struct{}) // for the next Send: waits until this is closed
}

func (c *heldConn) Send(trains []udp.Train) (int, error) {
	select {
	case until := <-c.hold:
		<-until
	default:
	}
	return c.Conn.Send(trains)
}

// TestLastAnswerLeavesLater: nor does a consumer that does so while another goroutine is sending earlier work of
// another queue pair, or when more is due to others than several batches hold.
func TestLastAnswerLeavesLater(t *testing.T) {
	for _, datagrams := range []int{0, 5 * batchPackets} {
		for name, end := range endings {
			t.Run(fmt.Sprintf("%s behind %d", name, datagrams), func(t *testing.T) {
				testLastAnswerLater(t, end, datagrams)
			})
		}
	}
}

func testLastAnswerLater(t *testing.T, end func(*Device, verbs.QP), datagrams int) {
	var held *heldConn
	p := newPair(t, pairConfig{timeout: patient, endpoint: simnet.Config{RecvBuffer: 8 << 20}, wrap: func(c udp.Conn) udp.Conn {
		held = &heldConn{c, make(chan (<-chan struct{}), 1)} // that of b, which is made last
		return held
	}})
	release, ending := make(chan struct{}), make(chan struct{})
	held.hold <- release
	posted := make(chan error, 1)
	go func(q verbs.QP) {
		_, err := q.PostSend([]verbs.SendWR{{WRID: 1, Opcode: verbs.WRRDMAWrite}})
		posted <- err
	}(p.b.qp)
	for len(held.hold) > 0 {
		time.Sleep(time.Millisecond)
	}
	for range datagrams {
		check(t, p.b.dev.SendMAD(addrA, make([]byte, madSize)))
	}
	p.endOnMessage(func(d *Device, q verbs.QP) {
		close(ending)
		end(d, q)
	})
	<-ending
	time.Sleep(20 * time.Millisecond) // time for it to begin to wait; earlier the answer would leave anyway
	close(release)
	check(t, <-posted)
	p.a.want(2, verbs.WCSuccess)
}

// TestAckOfUnsent: a request whose packet is acknowledged while it is still being sent doesn't complete before it has
// left, because its memory would then be reused.
func TestAckOfUnsent(t *testing.T) {
	var held *heldConn
	r := newRaw(t, pairConfig{wrap: func(c udp.Conn) udp.Conn {
		held = &heldConn{c, make(chan (<-chan struct{}), 1)}
		return held
	}})
	release, posted := make(chan struct{}), make(chan error, 1)
	held.hold <- release
	go func() {
		_, err := r.dev.qp.PostSend([]verbs.SendWR{{
			WRID: 7, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGList: r.dev.sge(0, 256),
		}})
		posted <- err
	}()
	for len(held.hold) > 0 {
		time.Sleep(time.Millisecond)
	}
	ack := r.packet(wire.RCAcknowledge, rawPSN, 0)
	ack.AETH = wire.AETH{Syndrome: wire.ACK, MSN: 1}
	r.send(ack)
	time.Sleep(20 * time.Millisecond) // time in which it would complete
	r.dev.mu.Lock()
	if len(r.dev.got) > 0 {
		t.Errorf("done before it has left: %+v", r.dev.got)
	}
	r.dev.mu.Unlock()
	close(release)
	check(t, <-posted)
	r.dev.want(7, verbs.WCSuccess)
}

// TestManyEnd: queue pairs that end at once, from several goroutines, while others send and the device closes, don't
// block forever.
func TestManyEnd(t *testing.T) {
	const pairs = 64
	p := newPair(t, pairConfig{depth: 4 * pairs})
	var qps [pairs]verbs.QP
	for i := range qps {
		p.a.qp, p.b.qp = p.a.newQP(p.cfg), p.b.newQP(p.cfg)
		p.connect(p.a, p.b)
		qps[i] = p.b.qp
		p.b.recv(1, p.b.sge(128<<10, 16)...)
		p.a.post(verbs.SendWR{WRID: 1, Opcode: verbs.WRSend, SGList: p.a.sge(0, 16)})
		p.b.post(verbs.SendWR{
			WRID: 1, Opcode: verbs.WRRDMAWrite, SGList: p.b.sge(0, 64<<10),
			RemoteAddr: p.a.mr.Addr() + 64<<10, RKey: p.a.mr.RKey(),
		})
	}
	var done sync.WaitGroup
	for i, q := range qps {
		for range 2 { // both; one is too late
			done.Go(func() {
				_ = q.Modify(verbs.QPAttr{State: verbs.Err})
				_ = q.Destroy()
			})
		}
		if i == pairs/2 {
			done.Go(func() { _ = p.b.dev.Close() })
		}
	}
	done.Wait()
}

// TestAckIsNotPassedForever: an acknowledgement for which others left no room in a batch leaves in the next one.
func TestAckIsNotPassedForever(t *testing.T) {
	p := newPair(t, pairConfig{})
	q := p.b.qp.(*qp)
	var others []*qp
	for range 8 {
		p.b.qp, p.a.qp = p.b.newQP(p.cfg), p.a.newQP(p.cfg)
		p.connect(p.a, p.b)
		others = append(others, p.b.qp.(*qp))
	}
	d := p.b.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sending = true // no other goroutine builds a batch
	defer func() { d.sending = false }()
	q.resp.queue.pushAck(wire.ACK, q.resp.expected, 0)
	d.markReady(q)
	for i := range 2 {
		for _, o := range others {
			for !o.resp.queue.full() {
				o.resp.queue.pushAtomic(o.resp.expected, 0)
			}
			d.markReady(o)
		}
		d.build(d.now())
		if waits := !q.resp.queue.empty(); waits != (i == 0) || !d.tx.full() {
			t.Errorf("batch %d of %d packets: the acknowledgement waits: %v", i, len(d.tx.packets), waits)
		}
	}
}

// TestPostBesideAnEnd: what is posted while another goroutine sends the last answers of a queue pair is sent too, even
// if nothing else happens.
func TestPostBesideAnEnd(t *testing.T) {
	var held *heldConn
	p := newPair(t, pairConfig{timeout: patient, wrap: func(c udp.Conn) udp.Conn {
		held = &heldConn{c, make(chan (<-chan struct{}), 1)} // that of b, which is made last
		return held
	}})
	q := p.b.qp.(*qp)
	p.b.qp, p.a.qp = p.b.newQP(p.cfg), p.a.newQP(p.cfg)
	p.connect(p.a, p.b)
	d := p.b.dev
	release, ended := make(chan struct{}), make(chan error)
	held.hold <- release
	d.mu.Lock()
	q.resp.queue.pushAck(wire.ACK, q.resp.expected, 0)
	d.markReady(q)
	d.mu.Unlock()
	go func() { ended <- q.Destroy() }()
	for len(held.hold) > 0 {
		time.Sleep(time.Millisecond)
	}
	posted := make(chan error)
	go func(q verbs.QP) { // waits if the engine is sending the answers
		_, err := q.PostSend([]verbs.SendWR{{WRID: 7, Opcode: verbs.WRRDMAWrite}})
		posted <- err
	}(p.b.qp)
	time.Sleep(20 * time.Millisecond) // usually long enough for the post
	close(release)
	check(t, <-ended)
	check(t, <-posted)
	p.b.want(7, verbs.WCSuccess)
}

// floodedConn is the socket of a device whose peers always have something that must be answered.
type floodedConn struct {
	udp.Conn
	more atomic.Pointer[func()] // nil: they don't
}

func (c *floodedConn) Send(trains []udp.Train) (int, error) {
	if f := c.more.Load(); f != nil {
		(*f)()
		time.Sleep(time.Millisecond) // otherwise the other side's buffer would overflow
	}
	return c.Conn.Send(trains)
}

// TestPostUnderFlood: a goroutine that posts returns even if peers make sure that there is always something to send,
// and handlers are called meanwhile.
func TestPostUnderFlood(t *testing.T) {
	var adding sync.WaitGroup
	t.Cleanup(adding.Wait) // when the device is closed
	var flooded *floodedConn
	p := newPair(t, pairConfig{timeout: patient, wrap: func(c udp.Conn) udp.Conn {
		flooded = &floodedConn{Conn: c}
		return flooded
	}})
	q := p.b.qp.(*qp)
	p.b.qp, p.a.qp = p.b.newQP(p.cfg), p.a.newQP(p.cfg)
	p.connect(p.a, p.b)
	d := p.b.dev
	more := func() {
		adding.Go(func() { // a socket can't wait for the lock: the engine may hold it until the batch is sent
			d.mu.Lock()
			defer d.mu.Unlock()
			q.resp.queue.pushAck(wire.ACK, q.resp.expected, 0)
			d.markReady(q)
		})
	}
	flooded.more.Store(&more)
	defer flooded.more.Store(nil)
	for range 20 {
		p.b.post(verbs.SendWR{WRID: 7, Opcode: verbs.WRRDMAWrite})
		p.b.want(7, verbs.WCSuccess)
	}
}
