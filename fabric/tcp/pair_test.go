package tcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testNQN  = "nqn.2014-08.org.nvmexpress:uuid:b1f5b2a0-3a67-4d8e-9a1c-000000000001"
	hostNQN  = "nqn.2014-08.org.nvmexpress:uuid:b1f5b2a0-3a67-4d8e-9a1c-000000000002"
	testSize = 64 << 20
	block    = 512
)

// patience is far longer than anything that ends at all takes, on a machine that may stand still for a while.
const patience = 5 * time.Minute

// testTarget is a real engine with one memory volume behind a Listener.
type testTarget struct {
	*Listener
	engine *target.Target
	errs   errorLog
}

func newTestTarget(t testing.TB, cfg TargetConfig) *testTarget {
	t.Helper()
	return newTestTargetOn(t, cfg, newTestVolume(t))
}

func newTestVolume(t testing.TB) blockdev.Volume {
	t.Helper()
	vol, err := blockdev.NewMemory(blockdev.Options{Size: testSize, BlockSize: block})
	if err != nil {
		t.Fatal(err)
	}
	return vol
}

// errorLog keeps the errors that were logged, and their messages.
type errorLog chan error

func (l errorLog) Enabled(context.Context, slog.Level) bool { return true }
func (l errorLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l errorLog) WithGroup(string) slog.Handler            { return l }

func (l errorLog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			select {
			case l <- fmt.Errorf("%s: %w", r.Message, err):
			default:
			}
		}
		return true
	})
	return nil
}

// anyPort makes the system pick a free port of this machine.
var anyPort = netip.MustParseAddrPort("127.0.0.1:0")

func newTestTargetOn(t testing.TB, cfg TargetConfig, vol blockdev.Volume) *testTarget {
	t.Helper()
	return newLimitedTarget(t, cfg, vol, target.Limits{})
}

func newLimitedTarget(t testing.TB, cfg TargetConfig, vol blockdev.Volume, limits target.Limits) *testTarget {
	t.Helper()
	engine, err := target.New(target.Config{Limits: limits, Subsystems: []target.SubsystemConfig{{
		NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{NSID: 1, Volume: vol}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	tt := &testTarget{engine: engine, errs: make(errorLog, 100)}
	cfg.Log = slog.New(tt.errs)
	if tt.Listener, err = ListenTarget(anyPort, engine, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tt.Close(); err != nil {
			t.Error(err)
		}
		if n := tt.Counters().Connections.Load(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
		if n := len(tt.peers); n != 0 {
			t.Errorf("%d hosts are remembered", n)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := engine.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := vol.Close(); err != nil {
			t.Error(err)
		}
	})
	return tt
}

// client is just enough of a host core to drive one queue.
type client struct {
	t    testing.TB
	q    host.TransportQueue
	mu   sync.Mutex
	out  map[uint16]*host.Request
	free []uint16
	gone chan struct{}
	err  error
}

func newClient(t testing.TB, size int) *client {
	c := &client{t: t, out: map[uint16]*host.Request{}, gone: make(chan struct{})}
	for i := range size {
		c.free = append(c.free, uint16(i))
	}
	return c
}

// Completed implements host.Sink.
func (c *client) Completed(cqe *nvme.Completion) bool {
	c.mu.Lock()
	r := c.out[cqe.CID()]
	delete(c.out, cqe.CID())
	if r != nil {
		c.free = append(c.free, cqe.CID())
	}
	c.mu.Unlock()
	if r == nil {
		return false
	}
	r.CQE = *cqe
	r.Done(r)
	return true
}

// Closed implements host.Sink.
func (c *client) Closed(err error) {
	c.mu.Lock()
	out := c.out
	c.out = map[uint16]*host.Request{}
	c.err = err
	c.mu.Unlock()
	for _, r := range out {
		r.Err = errors.Join(ErrClosed, err)
		r.Done(r)
	}
	close(c.gone)
}

// submit gives the requests CIDs, whose upper bits differ from slot numbers, and submits them.
func (c *client) submit(rs ...*host.Request) {
	c.mu.Lock()
	for _, r := range rs {
		cid := c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
		r.Err = nil
		r.Cmd.SetCID(cid)
		c.out[cid] = r
	}
	c.mu.Unlock()
	c.q.Submit(rs)
}

// do runs one command.
func (c *client) do(cmd nvme.Command, data []byte) (nvme.Completion, error) {
	done := make(chan struct{})
	r := &host.Request{Cmd: cmd, Data: data, Done: func(*host.Request) { close(done) }}
	c.submit(r)
	if _, ok := soon.Receive(done); !ok {
		c.t.Fatalf("no answer to opcode %#x", cmd.Opcode())
	}
	return r.CQE, r.Err
}

// must is do for a command that must succeed.
func (c *client) must(cmd nvme.Command, data []byte) nvme.Completion {
	c.t.Helper()
	cqe, err := c.do(cmd, data)
	if err != nil || !cqe.Status().OK() {
		c.t.Fatalf("opcode %#x: %v, status %v", cmd.Opcode(), err, cqe.Status())
	}
	return cqe
}

type clientOptions struct {
	host      HostConfig
	size      int
	inCapsule int
	noFlow    bool
	kato      uint32
}

// dial makes a connection and executes Connect.
func dial(t testing.TB, tr *Transport, remote netip.AddrPort, o clientOptions, qid, cntlid uint16) *client {
	t.Helper()
	c := newClient(t, o.size)
	a := host.QueueAttr{Remote: remote, QID: qid, CNTLID: cntlid, Size: o.size, InCapsule: o.inCapsule, Sink: c}
	q, err := tr.Dial(context.Background(), a)
	if err != nil {
		t.Fatal(err)
	}
	c.q = q
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// connect executes Connect on a dialled queue and returns the controller's CNTLID.
func (c *client) connect(qid, cntlid uint16, o clientOptions) uint16 {
	c.t.Helper()
	var cmd nvme.Command
	var attr nvme.CATTR
	if o.noFlow {
		attr = nvme.CATTRNoSQFlowControl
	}
	cmd.SetConnect(qid, uint16(o.size-1), attr, o.kato)
	d := nvme.ConnectData{CNTLID: cntlid, SubNQN: testNQN, HostNQN: hostNQN, HostID: nvme.HostID{1}}
	data, err := d.AppendTo(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	cqe := c.must(cmd, data)
	return nvme.ConnectResult(cqe.DW0()).CNTLID()
}

// pair is an admin queue and one I/O queue, enabled.
type pair struct {
	tr        *Transport
	admin, io *client
}

func newPair(t testing.TB, remote netip.AddrPort, o clientOptions) *pair {
	t.Helper()
	o.size = cmp.Or(o.size, 64)
	tr, err := NewTransport(o.host)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{tr: tr}
	ao := o
	ao.size = 32
	p.admin = dial(t, tr, remote, ao, 0, nvme.CNTLIDDynamic)
	cntlid := p.admin.connect(0, nvme.CNTLIDDynamic, ao)
	var cmd nvme.Command
	cmd.SetPropertySet(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable))
	p.admin.must(cmd, nil)
	var nq nvme.Command
	nq.SetSetFeatures(nvme.FeatNumberOfQueues, false, 0, 0)
	p.admin.must(nq, nil)
	p.io = dial(t, tr, remote, o, 1, cntlid)
	p.io.connect(1, cntlid, o)
	return p
}

func ioCommand(op nvme.Opcode, offset, length int) nvme.Command {
	var cmd nvme.Command
	cmd.SetIO(op, 1, uint64(offset/block), uint32(length/block), 0)
	return cmd
}
