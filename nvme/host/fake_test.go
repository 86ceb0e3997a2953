package host

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

const (
	testNQN     = "nqn.2024-01.com.example:disk1"
	testHostNQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
)

var testRemote = netip.MustParseAddrPort("127.0.0.1:4420")

// fakeTarget is a controller in memory that answers as the specification says, and a transport that leads to it.
// Tests change its pages before they connect, and its hook at any time (under mu).
type fakeTarget struct {
	mu       sync.Mutex
	kind     nvme.TransportType
	nqn      string
	identity nvme.IdentifyController
	cap      nvme.CAP
	cc       nvme.CC
	csts     nvme.CSTS
	maxIO    int
	grants   int // most entries of a queue; 0: as many as are asked for
	ns       map[uint32]*fakeNamespace
	queues   []*fakeQueue
	kato     uint32
	aer      []*fakeQueue // whose AER is outstanding, with aerCIDs
	aerCIDs  []uint16
	changed  nvme.NSIDList
	entries  []nvme.DiscoveryEntry
	genctr   uint64
	log      []nvme.Command // every command except I/O
	dialErr  error

	// hook sees every command first. verdict: answer it as usual, answer with the completion
	// that the hook has filled, or not at all.
	hook func(q *fakeQueue, r *Request, cqe *nvme.Completion) verdict
}

type verdict int

const (
	usual verdict = iota
	answered
	never
)

type fakeNamespace struct {
	identity nvme.IdentifyNamespace
	csi      nvme.CSI
	data     []byte
	discards []nvme.DSMRange
	zeroes   []uint32 // blocks of each Write Zeroes
	flushes  int
}

func newFakeTarget() *fakeTarget {
	t := &fakeTarget{
		kind:  nvme.TransportTCP,
		nqn:   testNQN,
		cap:   nvme.NewCAP(128, 2*time.Second, nvme.CAPNVM),
		maxIO: 8,
		ns:    map[uint32]*fakeNamespace{},
	}
	id := &t.identity
	id.CNTLID, id.VER, id.KAS, id.MDTS = 1, nvme.Version1_4, 10, 1
	id.SQES, id.CQES, id.MAXCMD = 0x66, 0x44, 128
	id.NN, id.CNTRLTYPE, id.ACL = 16, nvme.ControllerIO, 3
	id.ONCS = nvme.ONCSDSM | nvme.ONCSWriteZeroes | nvme.ONCSCompare | nvme.ONCSTimestamp
	id.OAES = nvme.AENNamespace
	id.LPA = nvme.LPAExtendedData
	id.SGLS = nvme.SGLSSupported
	id.IOCCSZ, id.IORCSZ = (64+4096)/16, 1
	nvme.PutPadded(id.SN[:], "1234")
	nvme.PutPadded(id.MN[:], "fake")
	t.addNamespace(1, 9, 4096)
	return t
}

func (t *fakeTarget) addNamespace(id uint32, lbads uint8, blocks uint64) *fakeNamespace {
	n := &fakeNamespace{data: make([]byte, blocks<<lbads)}
	n.identity.NSZE, n.identity.NCAP, n.identity.NUSE = blocks, blocks, blocks
	n.identity.LBAF[0].LBADS = lbads
	n.identity.NGUID[15] = byte(id)
	t.ns[id] = n
	return n
}

func (t *fakeTarget) config() Config {
	return Config{Transport: t, Remote: testRemote, SubNQN: t.nqn, HostNQN: testHostNQN, Queues: 2}
}

func (t *fakeTarget) Type() nvme.TransportType    { return t.kind }
func (t *fakeTarget) Alloc(n int) ([]byte, error) { return make([]byte, n), nil }
func (t *fakeTarget) Free([]byte)                 {}

func (t *fakeTarget) Dial(ctx context.Context, a QueueAttr) (TransportQueue, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dialErr != nil {
		return nil, t.dialErr
	}
	q := &fakeQueue{t: t, attr: a, wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	t.queues = append(t.queues, q)
	go q.run()
	return q, nil
}

func (t *fakeTarget) setHook(h func(*fakeQueue, *Request, *nvme.Completion) verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hook = h
}

// arrived returns the commands received so far, except I/O commands. Asynchronous Event Request and Keep Alive may
// be added at any time.
func (t *fakeTarget) arrived() []nvme.Command {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.log)
}

// commands returns how many commands of one name were received, except I/O commands.
func (t *fakeTarget) commands(name string) (n int) {
	for _, cmd := range t.arrived() {
		if cmd.Name(0) == name {
			n++
		}
	}
	return n
}

// breakAll breaks every connection, as a target that dies does.
func (t *fakeTarget) breakAll(err error) {
	t.mu.Lock()
	queues := t.queues
	t.mu.Unlock()
	for _, q := range queues {
		q.fail(err)
	}
}

// shuttingDown reports whether the host has asked the controller to shut down.
func (t *fakeTarget) shuttingDown() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cc.Shutdown() != nvme.CCSHNNone
}

// notify sends an event if a request for one is outstanding.
func (t *fakeTarget) notify(e nvme.AsyncEvent) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.aer) == 0 {
		return false
	}
	var cqe nvme.Completion
	cqe.SetDW0(uint32(e))
	cqe.SetCID(t.aerCIDs[0])
	q := t.aer[0]
	t.aer, t.aerCIDs = t.aer[1:], t.aerCIDs[1:]
	q.answer(cqe)
	return true
}

// fakeQueue is one connection. One goroutine answers its commands and calls the Sink.
type fakeQueue struct {
	t     *fakeTarget
	attr  QueueAttr
	wake  chan struct{}
	stop  chan struct{}
	once  sync.Once
	err   error
	ended chan struct{}

	mu   sync.Mutex
	in   []*Request
	late []nvme.Completion // answers that were held back
	dead bool

	cqe     nvme.Completion
	work    []*Request
	started bool // Connect succeeded
}

func (q *fakeQueue) Size() int             { return min(q.attr.Size, cmp.Or(q.t.grants, q.attr.Size)) }
func (q *fakeQueue) Local() netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:5") }

func (q *fakeQueue) Submit(rs []*Request) {
	q.mu.Lock()
	if !q.dead {
		q.in = append(q.in, rs...)
		for _, r := range rs {
			r.Cmd.SGL1().SetBlock(nvme.SGLTransport, 0, uint32(len(r.Data)))
		}
	}
	q.mu.Unlock()
	q.poke()
}

// answer sends an answer that was held back.
func (q *fakeQueue) answer(cqe nvme.Completion) {
	q.mu.Lock()
	q.late = append(q.late, cqe)
	q.mu.Unlock()
	q.poke()
}

func (q *fakeQueue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *fakeQueue) fail(err error) {
	q.once.Do(func() {
		q.err = err
		close(q.stop)
	})
}

func (q *fakeQueue) Close() error {
	q.fail(nil)
	<-q.ended
	return nil
}

func (q *fakeQueue) run() {
	defer close(q.ended)
	for {
		select {
		case <-q.stop:
		case <-q.wake:
		}
		select {
		case <-q.stop: // whatever arrived in the meantime
			q.mu.Lock()
			q.dead = true
			q.mu.Unlock()
			q.attr.Sink.Closed(q.err)
			return
		default:
		}
		q.mu.Lock()
		q.work = append(q.work[:0], q.in...)
		q.in = q.in[:0]
		late := q.late
		q.late = nil
		q.mu.Unlock()
		for i := range late {
			q.complete(&late[i])
		}
		for _, r := range q.work {
			q.serve(r)
		}
	}
}

func (q *fakeQueue) complete(cqe *nvme.Completion) {
	if !q.attr.Sink.Completed(cqe) {
		q.fail(errors.New("response to a command that isn't outstanding"))
	}
}

func (q *fakeQueue) serve(r *Request) {
	cqe := &q.cqe
	cqe.Reset()
	cqe.SetCID(r.Cmd.CID())
	v := usual
	q.t.mu.Lock()
	if q.attr.QID == 0 || r.Cmd.Opcode() == nvme.OpFabrics {
		q.t.log = append(q.t.log, r.Cmd)
	}
	hook := q.t.hook
	q.t.mu.Unlock()
	if hook != nil {
		v = hook(q, r, cqe)
	}
	if v == usual {
		q.t.mu.Lock()
		v = q.t.execute(q, r, cqe)
		q.t.mu.Unlock()
	}
	if v != never {
		q.complete(cqe)
	}
}

// execute answers one command. Called with t.mu held.
func (t *fakeTarget) execute(q *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
	c := &r.Cmd
	switch {
	case c.Opcode() == nvme.OpFabrics:
		t.fabrics(q, r, cqe)
	case !q.started:
		cqe.SetStatus(nvme.StatusInvalidOpcode | nvme.StatusDNR)
	case !t.csts.Ready():
		cqe.SetStatus(nvme.StatusCommandSequence | nvme.StatusDNR)
	case q.attr.QID != 0:
		t.io(r, cqe)
	case c.Opcode() == nvme.OpAsyncEvent:
		t.aer, t.aerCIDs = append(t.aer, q), append(t.aerCIDs, c.CID())
		return never
	default:
		t.adminCommand(r, cqe)
	}
	return answered
}

func (t *fakeTarget) fabrics(q *fakeQueue, r *Request, cqe *nvme.Completion) {
	c := &r.Cmd
	switch c.FCType() {
	case nvme.FCConnect:
		var d nvme.ConnectData
		if d.Parse(r.Data) != nil || d.SubNQN != t.nqn {
			cqe.SetDW0(uint32(nvme.InvalidData(nvme.ConnectDataOffSUBNQN)))
			cqe.SetStatus(nvme.StatusConnectInvalidParameter | nvme.StatusDNR)
			return
		}
		if c.ConnectQID() != q.attr.QID || int(c.ConnectSQSIZE())+1 != q.Size() {
			cqe.SetStatus(nvme.StatusConnectInvalidParameter)
			return
		}
		if q.attr.QID == 0 {
			t.kato = c.ConnectKATO()
		}
		q.started = true
		cqe.SetDW0(1)
	case nvme.FCPropertyGet:
		switch c.Property() {
		case nvme.PropCAP:
			cqe.SetResult(uint64(t.cap))
		case nvme.PropVS:
			cqe.SetDW0(uint32(t.identity.VER))
		case nvme.PropCSTS:
			cqe.SetDW0(uint32(t.csts))
		}
	case nvme.FCPropertySet:
		t.cc = nvme.CC(c.PropertyValue())
		t.csts = 0
		if t.cc.Enabled() {
			t.csts |= nvme.CSTSReady
		}
		if t.cc.Shutdown() != nvme.CCSHNNone {
			t.csts |= nvme.CSTSShutdownComplete
		}
	default:
		cqe.SetStatus(nvme.StatusInvalidOpcode | nvme.StatusDNR)
	}
}

func (t *fakeTarget) adminCommand(r *Request, cqe *nvme.Completion) {
	c := &r.Cmd
	switch c.Opcode() {
	case nvme.OpIdentify:
		t.identify(r, cqe)
	case nvme.OpSetFeatures, nvme.OpGetFeatures:
		cqe.SetDW0(c.CDW(11))
		if c.FID() == nvme.FeatNumberOfQueues {
			n := min(nvme.QueueCounts(c.CDW(11)).SQ(), t.maxIO)
			cqe.SetDW0(uint32(nvme.NewQueueCounts(n, n)))
		}
	case nvme.OpGetLogPage:
		t.readLog(r, cqe)
	case nvme.OpKeepAlive, nvme.OpAbort:
	default:
		cqe.SetStatus(nvme.StatusInvalidOpcode | nvme.StatusDNR)
	}
}

func (t *fakeTarget) identify(r *Request, cqe *nvme.Completion) {
	var page []byte
	n := t.ns[r.Cmd.NSID()]
	switch r.Cmd.CNS() {
	case nvme.CNSController:
		page = t.identity.AppendTo(nil)
	case nvme.CNSActiveNSIDs:
		var l nvme.NSIDList
		for id := r.Cmd.NSID() + 1; id <= 1100; id++ {
			if t.ns[id] != nil && len(l) < nvme.MaxNSIDList {
				l = append(l, id)
			}
		}
		page = l.AppendTo(nil)
	case nvme.CNSNamespace:
		if n == nil {
			n = &fakeNamespace{}
		}
		page = n.identity.AppendTo(nil)
	case nvme.CNSDescriptors:
		d := nvme.NSDescriptors{NGUID: n.identity.NGUID, CSI: n.csi, HasCSI: true}
		page = d.AppendTo(nil)
	case nvme.CNSCommandSetController:
		p := nvme.IdentifyControllerNVM{WZSL: 1}
		page = p.AppendTo(nil)
	default:
		cqe.SetStatus(nvme.StatusInvalidField | nvme.StatusDNR)
	}
	copy(r.Data, page)
}

func (t *fakeTarget) readLog(r *Request, cqe *nvme.Completion) {
	var page []byte
	switch r.Cmd.LID() {
	case nvme.LogDiscovery:
		h := nvme.DiscoveryHeader{GENCTR: t.genctr, NUMREC: uint64(len(t.entries))}
		page = h.AppendTo(nil)
		for i := range t.entries {
			page = t.entries[i].AppendTo(page)
		}
	case nvme.LogChangedNamespaces:
		page = (&nvme.ChangedNamespaces{NSIDs: t.changed}).AppendTo(nil)
		t.changed = nil
	case nvme.LogSMART:
		var p nvme.SMARTLog
		p.SetKelvin(300)
		page = p.AppendTo(nil)
	case nvme.LogError: // long, and each dword holds its position
		for i := range uint32(4096) {
			page = binary.LittleEndian.AppendUint32(page, i)
		}
	default:
		cqe.SetStatus(nvme.StatusInvalidLogPage | nvme.StatusDNR)
		return
	}
	off := min(r.Cmd.LogOffset(), uint64(len(page)))
	clear(r.Data[copy(r.Data, page[off:]):])
}

func (t *fakeTarget) io(r *Request, cqe *nvme.Completion) {
	c := &r.Cmd
	n := t.ns[c.NSID()]
	if n == nil {
		cqe.SetStatus(nvme.StatusInvalidNamespace | nvme.StatusDNR)
		return
	}
	switch c.Opcode() {
	case nvme.OpFlush:
		n.flushes++
		return
	case nvme.OpDSM:
		var d nvme.DSMRange
		_ = d.Parse(r.Data)
		n.discards = append(n.discards, d)
		return
	}
	bs := uint64(1) << n.identity.LBAF[0].LBADS
	if c.SLBA()+uint64(c.Blocks()) > n.identity.NSZE {
		cqe.SetStatus(nvme.StatusLBAOutOfRange | nvme.StatusDNR)
		return
	}
	at := n.data[c.SLBA()*bs:][:uint64(c.Blocks())*bs]
	switch c.Opcode() {
	case nvme.OpRead:
		copy(r.Data, at)
	case nvme.OpWrite:
		copy(at, r.Data)
	case nvme.OpWriteZeroes:
		clear(at)
		n.zeroes = append(n.zeroes, c.Blocks())
	case nvme.OpVerify, nvme.OpWriteUncorrectable:
	case nvme.OpCompare:
		if string(at) != string(r.Data) {
			cqe.SetStatus(nvme.StatusCompareFailure)
		}
	default:
		cqe.SetStatus(nvme.StatusInvalidOpcode | nvme.StatusDNR)
	}
}

// connect connects to t; the end of the test closes the controller.
func connect(t *testing.T, f *fakeTarget, change ...func(*Config)) *Controller {
	t.Helper()
	cfg := f.config()
	for _, c := range change {
		c(&cfg)
	}
	c, err := Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func closeController(t *testing.T, c *Controller) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
