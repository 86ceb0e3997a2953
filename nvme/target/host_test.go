package target

import (
	"bytes"
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Names that the tests use.
const (
	testNQN  = "nqn.2024-01.com.example:disk"
	testHost = "nqn.2014-08.org.nvmexpress:uuid:6fb0b2a5-3c1d-4b8e-9d5a-1f2e3d4c5b6a"
)

var testHostID = nvme.HostID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// fakeConn is a transport in memory: data is in the request (fakeRequest.host), and the test chooses what happens when.
type fakeConn struct {
	t    testing.TB
	attr ConnAttr
	q    *Queue

	// Choices, set before use.
	pullLate   bool               // Pulled comes from another goroutine
	pullErr    error              // instead of data
	allocFails int                // how often Alloc returns false for each request, with Resume following
	allocNever bool               // Alloc returns false, and Resume comes when the connection ends
	holdPull   bool               // Pulled comes when the connection ends
	holdSent   bool               // Sent comes when release is called
	stays      bool               // what waits for memory or data continues to wait when the connection ends, until come
	slow       bool               // Disconnect takes a minute
	bare       bool               // no accounting: for benchmarks
	answering  func(*fakeRequest) // is called with each response, before the host has it; nil: nothing is

	mu      sync.Mutex
	out     map[*fakeRequest]struct{} // with the engine, or not yet Sent
	waiting []*fakeRequest            // for memory that never comes
	pulling []*fakeRequest
	unsent  []*fakeRequest
	dead    bool
	reason  error
	wg      sync.WaitGroup // requests in out, and goroutines
	closed  chan struct{}
}

// fakeRequest is a command of the fake host.
type fakeRequest struct {
	Request
	conn    *fakeConn
	host    []byte // the host's memory
	refused int
	buf     []byte
	answers atomic.Int32
	done    chan struct{}
	cqe     nvme.Completion
}

func attr(tt nvme.TransportType) ConnAttr {
	return ConnAttr{
		Transport: tt,
		Local:     netip.MustParseAddrPort("127.0.0.1:4420"),
		Remote:    netip.MustParseAddrPort("127.0.0.2:40000"),
		SGLS:      nvme.SGLSSupported | nvme.SGLSKeyed | nvme.SGLSInCapsuleOffs, InCapsule: 4096, MaxTransfer: 1 << 20, QueueDepth: 128,
		QID: -1, CNTLID: -1,
	}
}

// dial makes a connection to tg; change may alter it before the engine sees it.
func dial(t testing.TB, tg *Target, change ...func(*fakeConn)) *fakeConn {
	t.Helper()
	c := &fakeConn{t: t, attr: attr(nvme.TransportTCP), out: map[*fakeRequest]struct{}{}, closed: make(chan struct{})}
	for _, f := range change {
		f(c)
	}
	var err error
	c.mu.Lock() // the engine may disconnect before fakeConn knows its queue
	c.q, err = tg.NewQueue(c)
	c.mu.Unlock()
	if err != nil {
		t.Fatalf("NewQueue: %v", err)
	}
	return c
}

func (c *fakeConn) Attr() ConnAttr { return c.attr }

func (c *fakeConn) MapSGL(r *Request) (int, nvme.Status) {
	fr := r.Transport.(*fakeRequest)
	switch s := r.Cmd.SGL1(); s.Type() {
	case nvme.SGLKeyed, nvme.SGLKeyedInvalidate:
		return int(s.KeyedLength()), nvme.StatusSuccess
	case nvme.SGLInCapsule:
		n := int(s.Length())
		if n > len(fr.host) {
			return 0, nvme.StatusSGLOffsetInvalid | nvme.StatusDNR
		}
		r.InCapsule = fr.host[:n]
		return n, nvme.StatusSuccess
	}
	return 0, nvme.StatusSGLTypeInvalid | nvme.StatusDNR
}

func (c *fakeConn) Alloc(r *Request, n int) bool {
	fr := r.Transport.(*fakeRequest)
	if c.allocNever {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.dead {
			c.waiting = append(c.waiting, fr)
			return false
		}
	}
	if fr.refused < c.allocFails {
		fr.refused++
		c.wg.Go(r.Resume)
		return false
	}
	if cap(fr.buf) < n {
		fr.buf = alignedMemory(n, 4096)
	}
	if !c.bare {
		copy(fr.buf[:n], bytes.Repeat([]byte{0xdb}, n)) // what another host has left there
	}
	r.Data = append(r.Data[:0], blockdev.Segment{Bytes: fr.buf[:n]})
	if n >= 8192 && !c.bare { // two pieces are enough
		r.Data = append(r.Data[:0], blockdev.Segment{Bytes: fr.buf[:4096]}, blockdev.Segment{Bytes: fr.buf[4096:n]})
	}
	return true
}

func (c *fakeConn) Pull(r *Request) {
	fr := r.Transport.(*fakeRequest)
	if c.holdPull {
		c.mu.Lock()
		if !c.dead {
			c.pulling = append(c.pulling, fr)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		r.Pulled(c.reason)
		return
	}
	fr.fetch()
	if c.pullLate {
		c.wg.Go(func() { r.Pulled(c.pullErr) })
		return
	}
	r.Pulled(c.pullErr)
}

// fetch copies the host's data to the memory that the command has for it.
func (fr *fakeRequest) fetch() {
	from := fr.host
	for i := range fr.Data {
		from = from[copy(fr.Data[i].Bytes, from):]
	}
}

func (c *fakeConn) Respond(r *Request) {
	fr := r.Transport.(*fakeRequest)
	if n := fr.answers.Add(1); n != 1 {
		c.t.Errorf("command %#x was answered %d times", r.Cmd[0], n)
	}
	fr.cqe = r.CQE
	if c.answering != nil {
		c.answering(fr)
	}
	if r.SendData {
		to := fr.host
		for i := range r.Data {
			to = to[copy(to, r.Data[i].Bytes):]
		}
	}
	if c.bare {
		r.Sent()
		return
	}
	c.mu.Lock()
	if c.holdSent && !c.dead {
		c.unsent = append(c.unsent, fr)
		c.mu.Unlock()
		close(fr.done)
		return
	}
	c.mu.Unlock()
	close(fr.done)
	c.sent(fr)
}

func (c *fakeConn) sent(fr *fakeRequest) {
	fr.Sent()
	c.mu.Lock()
	delete(c.out, fr)
	c.mu.Unlock()
	c.wg.Done()
}

// release calls Sent for the responses that were held, and at once for later ones.
func (c *fakeConn) release() {
	c.mu.Lock()
	unsent := c.unsent
	c.unsent, c.holdSent = nil, false
	c.mu.Unlock()
	for _, fr := range unsent {
		c.sent(fr)
	}
}

// Disconnect ends the connection as a transport does.
func (c *fakeConn) Disconnect(err error) {
	if c.slow {
		time.Sleep(time.Minute)
	}
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return
	}
	c.dead, c.reason = true, err
	var waiting, pulling []*fakeRequest
	if !c.stays {
		waiting, pulling = c.waiting, c.pulling
	}
	c.mu.Unlock()
	go func() {
		c.q.Closing(err)
		for _, fr := range waiting {
			fr.Resume()
		}
		for _, fr := range pulling {
			fr.Pulled(ErrClosed)
		}
		c.release()
		c.wg.Wait()
		c.q.Closed(err)
		close(c.closed)
	}()
}

// come supplies what was waited for, though the connection may have ended.
func (c *fakeConn) come() {
	c.mu.Lock()
	waiting, pulling := c.waiting, c.pulling
	c.waiting, c.pulling = nil, nil
	c.mu.Unlock()
	for _, fr := range waiting {
		fr.Resume()
	}
	for _, fr := range pulling {
		fr.fetch()
		fr.Pulled(nil)
	}
}

// hangUp ends the connection from the host's side and waits until it is gone.
func (c *fakeConn) hangUp(err error) {
	c.Disconnect(err)
	<-c.closed
}

func (c *fakeConn) waitClosed() {
	c.t.Helper()
	if _, ok := soon.Receive(c.closed); !ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.t.Fatalf("connection not closed: %d requests out", len(c.out))
	}
}

func (c *fakeConn) newRequest() *fakeRequest {
	fr := &fakeRequest{conn: c, done: make(chan struct{})}
	fr.Transport = fr
	return fr
}

// start submits a command. Its SGL describes data unless the test has set one.
func (c *fakeConn) start(cmd nvme.Command, data []byte) *fakeRequest {
	fr := c.newRequest()
	fr.Cmd, fr.host = cmd, data
	c.submit(fr)
	return fr
}

func (c *fakeConn) submit(fr *fakeRequest) {
	if s := fr.Cmd.SGL1(); *s == (nvme.SGL{}) {
		s.SetKeyed(nvme.SGLKeyed, 0x1000, uint32(len(fr.host)), 7)
	}
	c.wg.Add(1)
	c.mu.Lock()
	c.out[fr] = struct{}{}
	c.mu.Unlock()
	c.q.Submit(&fr.Request)
}

func (fr *fakeRequest) wait() *nvme.Completion {
	fr.conn.t.Helper()
	if _, ok := soon.Receive(fr.done); !ok {
		fr.conn.t.Fatalf("command %#x was not answered", fr.Cmd[0])
	}
	return &fr.cqe
}

// do executes a command.
func (c *fakeConn) do(cmd nvme.Command, data []byte) *nvme.Completion {
	c.t.Helper()
	return c.start(cmd, data).wait()
}

// must executes a command that succeeds.
func (c *fakeConn) must(cmd nvme.Command, data []byte) *nvme.Completion {
	c.t.Helper()
	cqe := c.do(cmd, data)
	if st := cqe.Status(); st != nvme.StatusSuccess {
		c.t.Fatalf("command %#x (dword 10 %#x): status %#x", cmd[0], cmd.CDW10(), uint16(st))
	}
	return cqe
}

// fails executes a command that ends with exactly st, except for More.
func (c *fakeConn) fails(cmd nvme.Command, data []byte, st nvme.Status) *nvme.Completion {
	c.t.Helper()
	cqe := c.do(cmd, data)
	if got := cqe.Status() &^ nvme.StatusMore; got != st {
		c.t.Errorf("command %#x (dword 10 %#x): status %#x, want %#x", cmd[0], cmd.CDW10(), uint16(got), uint16(st))
	}
	return cqe
}

func command(set func(*nvme.Command)) (c nvme.Command) {
	set(&c)
	return c
}

// connectData is the data of a Connect of the test host.
func connectData(t testing.TB, cntlid uint16, nqn string) []byte {
	t.Helper()
	d := nvme.ConnectData{HostID: testHostID, CNTLID: cntlid, SubNQN: nqn, HostNQN: testHost}
	b, err := d.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func connectCommand(qid, sqsize uint16, kato uint32) nvme.Command {
	return command(func(c *nvme.Command) { c.SetConnect(qid, sqsize, 0, kato) })
}

func setProperty(p nvme.Property, v uint64) nvme.Command {
	return command(func(c *nvme.Command) { c.SetPropertySet(p, v) })
}

func getProperty(p nvme.Property) nvme.Command {
	return command(func(c *nvme.Command) { c.SetPropertyGet(p) })
}

// connectAdmin connects and enables a controller, and returns its CNTLID.
func connectAdmin(c *fakeConn, nqn string, kato uint32) uint16 {
	c.t.Helper()
	cqe := c.must(connectCommand(0, 31, kato), connectData(c.t, nvme.CNTLIDDynamic, nqn))
	c.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	return nvme.ConnectResult(cqe.DW0()).CNTLID()
}

// session is a host with an admin queue and one I/O queue.
type session struct {
	admin, io *fakeConn
	cntlid    uint16
}

func connect(t testing.TB, tg *Target, nqn string, change ...func(*fakeConn)) *session {
	t.Helper()
	s := &session{admin: dial(t, tg)}
	s.cntlid = connectAdmin(s.admin, nqn, 0)
	s.io = s.addQueue(t, tg, 1, nqn, change...)
	return s
}

func (s *session) addQueue(t testing.TB, tg *Target, qid uint16, nqn string, change ...func(*fakeConn)) *fakeConn {
	t.Helper()
	c := dial(t, tg)
	c.must(connectCommand(qid, 127, 0), connectData(t, s.cntlid, nqn))
	for _, f := range change {
		f(c)
	}
	return c
}

func (s *session) close() {
	s.io.hangUp(nil)
	s.admin.hangUp(nil)
}

// newTarget makes a target with one subsystem that has the volumes as namespaces 1, 2 and so on.
func newTarget(t testing.TB, volumes ...blockdev.Volume) *Target {
	t.Helper()
	return newTargetWith(t, func(*Config) {}, volumes...)
}

func newTargetWith(t testing.TB, change func(*Config), volumes ...blockdev.Volume) *Target {
	t.Helper()
	s := SubsystemConfig{NQN: testNQN, AllowAnyHost: true}
	for _, v := range volumes {
		s.Namespaces = append(s.Namespaces, NamespaceConfig{Volume: v})
	}
	cfg := Config{Subsystems: []SubsystemConfig{s}}
	change(&cfg)
	tg, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTarget(t, tg) })
	return tg
}

// closeTarget closes a target and checks that nothing is left of its hosts.
func closeTarget(t testing.TB, tg *Target) {
	t.Helper()
	if err := tg.Close(context.WithoutCancel(t.Context())); err != nil { // the test's own has ended if this is its cleanup
		t.Error(err)
	}
	<-tg.idle
	if s := tg.Snapshot(); s.Connections != 0 || s.Controllers != 0 {
		t.Errorf("after Close: %d connections, %d controllers", s.Connections, s.Controllers)
	} else {
		for _, sub := range s.Subsystems {
			for _, ns := range sub.Namespaces {
				if ns.Users != 0 {
					t.Errorf("after Close: namespace %d has %d users", ns.NSID, ns.Users)
				}
			}
		}
	}
}
