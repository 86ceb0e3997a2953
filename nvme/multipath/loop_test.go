package multipath

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/ncw/directio"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

const (
	testNQN = "nqn.2024-01.com.example:disk"
	hostNQN = "nqn.2014-08.org.nvmexpress:uuid:6fb0b2a5-3c1d-4b8e-9d5a-1f2e3d4c5b6a"
)

var (
	hostID, _ = nvme.HostIDOf(hostNQN)
	errCut    = errors.New("the wire was cut")
)

// link is a wire to a port of a target: a host.Transport in memory whose other end is the engine of nvme/target
// itself.
type link struct {
	addr netip.AddrPort
	kind nvme.TransportType
	most int // bytes that one command transfers

	mu     sync.Mutex
	tgt    *target.Target // nil: nobody listens
	queues []*loopQueue
	dials  int
	// answer may replace the status of a response to an I/O command, answerAdmin that of an admin command, and
	// alter the data that the host gets; hold keeps an I/O command from the target.
	answer      func(c *nvme.Command, cqe *nvme.Completion)
	answerAdmin func(c *nvme.Command, cqe *nvme.Completion)
	alter       func(c *nvme.Command, data []byte)
	hold        func(c *nvme.Command) bool
}

func newLink(tgt *target.Target, port string) *link {
	return &link{tgt: tgt, addr: netip.MustParseAddrPort(port), kind: nvme.TransportTCP, most: 1 << 20}
}

func (l *link) Type() nvme.TransportType { return l.kind }
func (l *link) Free([]byte)              {}

func (l *link) Alloc(n int) ([]byte, error) { return directio.AlignedBlock(n), nil }

func (l *link) Dial(_ context.Context, a host.QueueAttr) (host.TransportQueue, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dials++
	if l.tgt == nil {
		return nil, syscall.ECONNREFUSED
	}
	q := &loopQueue{l: l, attr: a, wake: make(chan struct{}, 1), gone: make(chan struct{}), reqs: make([]*loopRequest, a.Size*2)}
	eng, err := l.tgt.NewQueue(q)
	if err != nil {
		return nil, err
	}
	q.eng = eng
	l.queues = append(l.queues, q)
	go q.run()
	return q, nil
}

// cut ends every connection, and refuses new ones until the link is restored.
func (l *link) cut() {
	l.mu.Lock()
	l.tgt = nil
	queues := l.queues
	l.queues = nil
	l.mu.Unlock()
	for _, q := range queues { // at once: the target ends all connections of a controller that has lost one, for that reason
		q.mu.Lock()
	}
	for _, q := range queues {
		q.die(errCut)
	}
}

func (l *link) restore(tgt *target.Target) {
	l.mu.Lock()
	l.tgt = tgt
	l.mu.Unlock()
}

func (l *link) set(f func(*link)) {
	l.mu.Lock()
	f(l)
	l.mu.Unlock()
}

func (l *link) tries() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials
}

// loopQueue is one connection: both halves. Its goroutine submits commands to the engine and
// delivers responses, so that neither side runs in the other's call.
type loopQueue struct {
	l    *link
	attr host.QueueAttr
	eng  *target.Queue
	wake chan struct{}
	gone chan struct{}
	reqs []*loopRequest // by slot

	mu   sync.Mutex
	in   []*host.Request
	out  []nvme.Completion
	busy int // with the engine
	dead bool
	err  error
}

type loopRequest struct {
	target.Request
	data []byte // the host's
}

func (q *loopQueue) Size() int             { return q.attr.Size }
func (q *loopQueue) Local() netip.AddrPort { return netip.MustParseAddrPort("127.0.0.9:9") }

func (q *loopQueue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *loopQueue) Submit(rs []*host.Request) {
	q.mu.Lock()
	if !q.dead {
		q.in = append(q.in, rs...)
	}
	q.mu.Unlock()
	q.poke()
}

func (q *loopQueue) Close() error {
	q.end(nil)
	<-q.gone
	return nil
}

func (q *loopQueue) end(err error) {
	q.mu.Lock()
	q.die(err)
}

// die is end with mu held, and unlocks it.
func (q *loopQueue) die(err error) {
	if !q.dead {
		q.dead, q.err = true, err
	}
	q.mu.Unlock()
	q.poke()
}

func (q *loopQueue) run() {
	var closing sync.Once
	for range q.wake {
		q.mu.Lock()
		in, out, dead := q.in, q.out, q.dead
		q.in, q.out = nil, nil
		q.mu.Unlock()
		if dead {
			closing.Do(func() { q.eng.Closing(q.err) })
			q.mu.Lock()
			idle := q.busy == 0
			q.mu.Unlock()
			if idle {
				q.eng.Closed(q.err)
				q.attr.Sink.Closed(q.err)
				close(q.gone)
				return
			}
			continue
		}
		for i := range out {
			q.attr.Sink.Completed(&out[i])
		}
		for _, r := range in {
			q.serve(r)
		}
	}
}

func (q *loopQueue) serve(r *host.Request) {
	q.l.mu.Lock()
	hold := q.l.hold
	q.l.mu.Unlock()
	if q.attr.QID != 0 && hold != nil && hold(&r.Cmd) {
		return
	}
	lr := &loopRequest{data: r.Data}
	lr.Transport = lr
	lr.Cmd = r.Cmd
	lr.Cmd.SGL1().SetKeyed(nvme.SGLKeyed, 0x1000, uint32(len(r.Data)), 7)
	q.mu.Lock()
	q.busy++
	q.mu.Unlock()
	q.eng.Submit(&lr.Request)
}

// The methods below implement target.Conn.

func (q *loopQueue) Attr() target.ConnAttr {
	return target.ConnAttr{
		Transport: q.l.kind, Local: q.l.addr, Remote: q.Local(), SGLS: 0x100005,
		InCapsule: 4096, MaxTransfer: q.l.most, QueueDepth: 128, QID: -1, CNTLID: -1,
	}
}

func (q *loopQueue) MapSGL(r *target.Request) (int, nvme.Status) {
	return int(r.Cmd.SGL1().KeyedLength()), nvme.StatusSuccess
}

func (q *loopQueue) Alloc(r *target.Request, n int) bool {
	r.Data = append(r.Data[:0], blockdev.Segment{Bytes: directio.AlignedBlock(n)})
	return true
}

func (q *loopQueue) Pull(r *target.Request) {
	from := r.Transport.(*loopRequest).data
	for i := range r.Data {
		from = from[copy(r.Data[i].Bytes, from):]
	}
	r.Pulled(nil)
}

func (q *loopQueue) Respond(r *target.Request) {
	lr := r.Transport.(*loopRequest)
	cqe, cmd := r.CQE, r.Cmd
	q.l.mu.Lock()
	answer, alter := q.l.answer, q.l.alter
	if q.attr.QID == 0 {
		answer = q.l.answerAdmin
	}
	q.l.mu.Unlock()
	if answer != nil && cmd.Opcode() != nvme.OpFabrics {
		answer(&cmd, &cqe)
	}
	q.mu.Lock()
	if !q.dead {
		if r.SendData {
			to := lr.data
			for i := range r.Data {
				to = to[copy(to, r.Data[i].Bytes):]
			}
			if alter != nil {
				alter(&cmd, lr.data)
			}
		}
		q.out = append(q.out, cqe)
	}
	q.mu.Unlock()
	r.Sent()
	q.mu.Lock()
	q.busy--
	q.mu.Unlock()
	q.poke()
}

func (q *loopQueue) Disconnect(err error) { q.end(err) }

// rig is a target with a volume and several links to it.
type rig struct {
	t      *testing.T
	volume blockdev.Volume
	tgt    *target.Target
	links  []*link
}

const volumeSize = 1 << 20

func newTarget(t *testing.T, v blockdev.Volume, change ...func(*target.NamespaceConfig)) *target.Target {
	t.Helper()
	ns := target.NamespaceConfig{Volume: v, ANAGroup: 1}
	for _, f := range change {
		f(&ns)
	}
	tgt, err := target.New(target.Config{Subsystems: []target.SubsystemConfig{
		{NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{ns}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return tgt
}

func newRig(t *testing.T, links int) *rig {
	t.Helper()
	v, err := blockdev.NewMemory(blockdev.Options{Size: volumeSize})
	if err != nil {
		t.Fatal(err)
	}
	return newRigOf(t, v, links)
}

// newRigOf is newRig with a given volume.
func newRigOf(t *testing.T, v blockdev.Volume, links int) *rig {
	t.Helper()
	r := &rig{t: t, volume: v, tgt: newTarget(t, v)}
	for i := range links {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), 4420)
		port := target.Port{ID: uint16(i + 1), Transport: nvme.TransportTCP, Addr: addr}
		if err := r.tgt.AddPort(port); err != nil {
			t.Fatal(err)
		}
		r.links = append(r.links, newLink(r.tgt, addr.String()))
	}
	return r
}

// addNamespace adds one more namespace, of a volume in memory, to the target.
func (r *rig) addNamespace(c target.NamespaceConfig) {
	r.t.Helper()
	v, err := blockdev.NewMemory(blockdev.Options{Size: volumeSize})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { v.Close() })
	c.Volume = v
	if _, err := r.tgt.Subsystem(testNQN).AddNamespace(c); err != nil {
		r.t.Fatal(err)
	}
}

// config has every path used, however few requests there are.
func (r *rig) config() Config {
	c := Config{Policy: RoundRobin}
	for _, l := range r.links {
		c.Paths = append(c.Paths, host.Config{Transport: l, Remote: l.addr, SubNQN: testNQN, HostNQN: hostNQN, HostID: hostID, Queues: 2})
	}
	return c
}

// connect connects and opens the namespace.
func (r *rig) connect(change ...func(*Config)) (*Subsystem, *Namespace) {
	r.t.Helper()
	cfg := r.config()
	for _, f := range change {
		f(&cfg)
	}
	s, err := Connect(r.t.Context(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	n, err := s.Namespace(r.t.Context(), 1)
	if err != nil {
		r.t.Fatal(err)
	}
	return s, n
}

// close ends everything.
func (r *rig) close(s *Subsystem) {
	r.t.Helper()
	if err := s.Close(); err != nil && !errors.Is(err, host.ErrLost) {
		r.t.Errorf("Close: %v", err)
	}
	if err := r.tgt.Close(context.Background()); err != nil {
		r.t.Error(err)
	}
	r.volume.Close()
}
