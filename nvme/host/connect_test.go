package host

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

func TestConnect(t *testing.T) {
	f := newFakeTarget()
	c := connect(t, f, func(c *Config) { c.QueueSize = 64; c.KATO = 7 * time.Second })
	want := Limits{Queues: 2, QueueSize: 64, MaxTransfer: 8192, InCapsule: 4096, KATO: 7 * time.Second}
	if c.Limits() != want {
		t.Errorf("limits %+v, want %+v", c.Limits(), want)
	}
	if c.CNTLID() != 1 || c.Version() != nvme.Version1_4 || c.Identify().ModelNumber() != "fake" || len(c.Queues()) != 2 {
		t.Errorf("CNTLID %d, version %v, model %q", c.CNTLID(), c.Version(), c.Identify().ModelNumber())
	}
	if f.kato != 7000 {
		t.Errorf("Connect carried KATO %d, the unit is ms", f.kato)
	}
	if q := c.Queues()[1]; q.ID() != 2 || q.Depth() != 63 || q.Size() != 64 {
		t.Errorf("queue %d of size %d and depth %d", q.ID(), q.Size(), q.Depth())
	}
	if _, err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	closeController(t, c)
	if f.cc.Shutdown() != nvme.CCSHNNormal {
		t.Errorf("CC is %#x: no shutdown", f.cc)
	}
	if !errors.Is(c.Err(), ErrClosed) {
		t.Errorf("Err is %v", c.Err())
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := c.Ping(t.Context()); !errors.Is(err, ErrClosed) || !errors.Is(err, nvme.StatusHostAborted) {
		t.Errorf("command after Close: %v", err)
	}
}

// TestBringUp compares the order of commands with that of Linux.
func TestBringUp(t *testing.T) {
	f := newFakeTarget()
	c := connect(t, f, func(c *Config) { c.KATO = -1 }) // otherwise one comes if the machine stalls
	closeController(t, c)
	var got []string
	for _, cmd := range f.arrived() {
		if n := cmd.Name(0); len(got) == 0 || got[len(got)-1] != n {
			got = append(got, n)
		}
	}
	want := []string{"Connect", "Property Get (CAP)", "Property Set (CC)", "Property Get (CSTS)", "Property Set (CC)", "Property Get (CSTS)",
		"Property Get (VS)", "Identify (CNS 01h)", "Identify (CNS 06h)", "Set Features (Timestamp)", "Set Features (Number of Queues)",
		"Connect", "Set Features (Asynchronous Event Configuration)", "Asynchronous Event Request", "Property Set (CC)", "Property Get (CSTS)"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestAdvancedRetry: a controller that has retry delays sends one only to a host that says that it obeys them (NVMe
// base, "Host Behavior Support", ACRE). A refusal does no harm.
func TestAdvancedRetry(t *testing.T) {
	for _, refusal := range []nvme.Status{nvme.StatusSuccess, nvme.StatusInvalidField | nvme.StatusDNR} {
		f := newFakeTarget()
		f.identity.CRDT1 = 5
		var got []nvme.HostBehavior
		f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			if r.Cmd.Opcode() != nvme.OpSetFeatures || r.Cmd.FID() != nvme.FeatHostBehavior {
				return usual
			}
			var b nvme.HostBehavior
			if err := b.Parse(r.Data); err != nil {
				t.Error(err)
			}
			got = append(got, b)
			cqe.SetStatus(refusal)
			return answered
		})
		closeController(t, connect(t, f, func(*Config) {}))
		if !slices.Equal(got, []nvme.HostBehavior{{ACRE: 1}}) {
			t.Errorf("host behavior %+v", got)
		}
	}
}

// TestEventsRefused: a controller that refuses to be asked for asynchronous events is connected without them, and
// the log says so. A controller that is lost in the process isn't.
func TestEventsRefused(t *testing.T) {
	f := newFakeTarget()
	onEvents := func(do func(*fakeQueue, *nvme.Completion) verdict) {
		f.setHook(func(q *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			if r.Cmd.Opcode() != nvme.OpSetFeatures || r.Cmd.FID() != nvme.FeatAsyncEvent {
				return usual
			}
			return do(q, cqe)
		})
	}
	onEvents(func(_ *fakeQueue, cqe *nvme.Completion) verdict {
		cqe.SetStatus(nvme.StatusInvalidField | nvme.StatusDNR)
		return answered
	})
	var log strings.Builder
	c := connect(t, f, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if !strings.Contains(log.String(), "no asynchronous events") || !strings.Contains(log.String(), "invalid field") {
		t.Errorf("the log says %q", log.String())
	}
	closeController(t, c)
	if n := f.commands("Asynchronous Event Request"); n != 0 {
		t.Errorf("%d events were asked for", n)
	}

	onEvents(func(q *fakeQueue, _ *nvme.Completion) verdict {
		q.fail(errors.New("gone"))
		return never
	})
	if _, err := Connect(t.Context(), f.config()); !errors.Is(err, ErrLost) {
		t.Errorf("lost when asked for events: %v", err)
	}
}

func TestConnectGrantsFewer(t *testing.T) {
	f := newFakeTarget()
	f.maxIO = 3
	f.identity.MAXCMD = 16
	c := connect(t, f, func(c *Config) { c.Queues = 100 })
	defer closeController(t, c)
	if l := c.Limits(); l.Queues != 3 || l.QueueSize != 16 {
		t.Errorf("limits %+v", l)
	}
}

// TestConnectGrantsFewerOfOne: each I/O queue is a submission and a completion queue, so the smaller of the two
// numbers granted counts; and the queues have no more entries than their connection has.
func TestConnectGrantsFewerOfOne(t *testing.T) {
	for _, granted := range []nvme.QueueCounts{nvme.NewQueueCounts(2, 5), nvme.NewQueueCounts(5, 2)} {
		f := newFakeTarget()
		f.grants = 32
		f.hook = func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			if r.Cmd.Opcode() != nvme.OpSetFeatures || r.Cmd.FID() != nvme.FeatNumberOfQueues {
				return usual
			}
			cqe.SetDW0(uint32(granted))
			return answered
		}
		c := connect(t, f, func(c *Config) { c.Queues = 8 })
		if n := len(c.Queues()); n != 2 || c.Limits().Queues != 2 {
			t.Errorf("%d SQs and %d CQs granted: %d queues", granted.SQ(), granted.CQ(), n)
		}
		if q := c.Queues()[0]; q.Size() != 32 || q.Depth() != 31 {
			t.Errorf("a connection for 32 entries: size %d, depth %d", q.Size(), q.Depth())
		}
		closeController(t, c)
	}
}

// TestCommandSets: the command sets chosen in CC when a controller is enabled stay the same when it is shut down:
// CC.CSS must not change while it is enabled (NVMe base 2.1, CC).
func TestCommandSets(t *testing.T) {
	for sets, css := range map[nvme.CAP]nvme.CC{
		nvme.CAPNVM: nvme.CCCSSNVM, nvme.CAPNVM | nvme.CAPIOCS: nvme.CCCSSAll, nvme.CAPNoIO: nvme.CCCSSNone,
	} {
		f := newFakeTarget()
		f.cap = nvme.NewCAP(128, 2*time.Second, sets)
		closeController(t, connect(t, f))
		for _, cmd := range f.arrived() {
			if cmd.Opcode() == nvme.OpFabrics && cmd.FCType() == nvme.FCPropertySet && nvme.CC(cmd.PropertyValue())&nvme.CCCSSMask != css {
				t.Errorf("CAP %#x: CC is set to %#x", f.cap, cmd.PropertyValue())
			}
		}
	}
}

// TestAdministrativeController: an administrative controller (NVMe base 2.1, section 3.1.3.2) has no I/O queues, and
// says nothing about them. It is connected to for its admin commands.
func TestAdministrativeController(t *testing.T) {
	f := newFakeTarget()
	id := &f.identity
	id.CNTRLTYPE, id.SQES, id.CQES, id.IOCCSZ, id.IORCSZ = nvme.ControllerAdmin, 0, 0, 0, 0
	f.hook = func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		if r.Cmd.Opcode() == nvme.OpSetFeatures && r.Cmd.FID() == nvme.FeatNumberOfQueues {
			cqe.SetStatus(nvme.StatusInvalidField | nvme.StatusDNR)
			return answered
		}
		return usual
	}
	c := connect(t, f)
	defer closeController(t, c)
	if len(c.Queues()) != 0 || c.Limits().Queues != 0 || len(f.queues) != 1 {
		t.Errorf("%d I/O queues, %d connections", len(c.Queues()), len(f.queues))
	}
	if ids, err := c.ActiveNamespaces(t.Context()); err != nil || len(ids) != 1 {
		t.Errorf("namespaces %v, %v", ids, err)
	}
	if _, err := c.Namespace(t.Context(), 1); !errors.Is(err, ErrUnsupported) {
		t.Errorf("opened for I/O: %v", err)
	}
}

// TestConnectAnyName: the name of a subsystem need not have the form of an NQN. Linux's target exports it all the same.
func TestConnectAnyName(t *testing.T) {
	f := newFakeTarget()
	f.nqn = "testnqn"
	cfg := f.config()
	cfg.SubNQN = f.nqn
	c, err := Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeController(t, c)
}

func TestConnectRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fakeTarget)
		want   string
		is     error
	}{
		"wrong subsystem":  {func(f *fakeTarget) { f.nqn = "nqn.2024-01.com.example:other" }, "queue 0: Connect: connect invalid parameters (do not retry): subsystem NQN; the target doesn't export", nvme.StatusConnectInvalidParameter},
		"CNTLID":           {func(f *fakeTarget) { f.identity.CNTLID = 2 }, "CNTLID is 2, but Connect gave 1", ErrController},
		"KAS":              {func(f *fakeTarget) { f.identity.KAS = 0 }, "KAS is 0", ErrController},
		"IOCCSZ":           {func(f *fakeTarget) { f.identity.IOCCSZ = 3 }, "IOCCSZ is 3", ErrController},
		"IORCSZ":           {func(f *fakeTarget) { f.identity.IORCSZ = 0 }, "IORCSZ is 0", ErrController},
		"ICDOFF":           {func(f *fakeTarget) { f.identity.ICDOFF = 1 }, "ICDOFF is 1", ErrController},
		"SGLS":             {func(f *fakeTarget) { f.identity.SGLS = nvme.SGLSKeyed }, "SGLS is 0x4", ErrController},
		"SGLS over RDMA":   {func(f *fakeTarget) { f.kind = nvme.TransportRDMA }, "keyed SGLs", ErrController},
		"SQES":             {func(f *fakeTarget) { f.identity.SQES = 0x77 }, "SQES is 0x77", ErrController},
		"CQES":             {func(f *fakeTarget) { f.identity.CQES = 0x33 }, "CQES is 0x33", ErrController},
		"MPSMIN":           {func(f *fakeTarget) { f.cap |= 1 << 48 }, "CAP.MPSMIN is 1", ErrController},
		"dial":             {func(f *fakeTarget) { f.dialErr = errors.New("nobody listens") }, "tcp://127.0.0.1:4420, subsystem nqn.2024-01.com.example:disk1, queue 0: connection: nobody listens", nil},
		"fatal controller": {func(f *fakeTarget) { f.hook = csts(nvme.CSTSFatal) }, "CSTS.CFS", ErrFatal},
		"gone controller":  {func(f *fakeTarget) { f.hook = csts(nvme.CSTSGone) }, "all ones", ErrLost},
		"authentication":   {func(f *fakeTarget) { f.hook = connectResult(uint32(nvme.ConnectATR) | 1) }, "the controller demands it, and no secret was given", ErrAuthentication},
		"secure channel":   {func(f *fakeTarget) { f.hook = connectResult(uint32(nvme.ConnectASCR) | 1) }, "TLS", ErrSecureChannel},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeTarget()
			cfg := f.config()
			tc.change(f)
			_, err := Connect(t.Context(), cfg)
			var ce *ConnectError
			if !errors.As(err, &ce) || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("got %v, want it to say %q", err, tc.want)
			}
		})
	}
}

// TestLinuxControllers checks that the pages of Linux's controllers pass, over TCP.
func TestLinuxControllers(t *testing.T) {
	for name, nqn := range map[string]string{"identify-controller": testNQN, "discovery-identify-controller": nvme.DiscoveryNQN} {
		b, err := os.ReadFile("../testdata/" + name + ".bin")
		if err != nil {
			t.Fatal(err)
		}
		c := &Controller{cfg: Config{Transport: newFakeTarget(), SubNQN: nqn}.withDefaults(), cntlid: 1, cap: nvme.NewCAP(1024, 0, 0)}
		if err := c.identity.Parse(b); err != nil {
			t.Fatal(err)
		}
		if err := c.checkIdentity(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.settleLimits()
		if l := c.limits; name == "identify-controller" && (l.InCapsule != 16384 || l.MaxTransfer != maxTransfer || l.QueueSize != 128) {
			t.Errorf("limits %+v", l)
		}
	}
}

func csts(s nvme.CSTS) func(*fakeQueue, *Request, *nvme.Completion) verdict {
	return func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		if r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCPropertyGet && r.Cmd.Property() == nvme.PropCSTS {
			cqe.SetDW0(uint32(s))
			return answered
		}
		return usual
	}
}

func connectResult(v uint32) func(*fakeQueue, *Request, *nvme.Completion) verdict {
	return func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		if r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCConnect {
			cqe.SetDW0(v)
			return answered
		}
		return usual
	}
}

func TestConnectNeverReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget() // CAP.TO is 2 s
		f.hook = csts(0)
		start := time.Now()
		_, err := Connect(t.Context(), f.config())
		if took := time.Since(start); !errors.Is(err, ErrTimeout) || took < 2*time.Second || took > 3*time.Second || !strings.Contains(err.Error(), "volume") {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestConnectSilentTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.hook = func(*fakeQueue, *Request, *nvme.Completion) verdict { return never }
		cfg := f.config()
		cfg.ConnectTimeout = 3 * time.Second
		start := time.Now()
		_, err := Connect(t.Context(), cfg)
		if took := time.Since(start); !errors.Is(err, ErrTimeout) || took != 3*time.Second || !strings.Contains(err.Error(), "not connected after 3s") {
			t.Errorf("after %v: %v", took, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		start = time.Now()
		_, err = Connect(ctx, cfg)
		if took := time.Since(start); !errors.Is(err, context.Canceled) || took != time.Second || strings.Count(err.Error(), context.Canceled.Error()) != 1 {
			t.Errorf("cancelled after %v: %v", took, err)
		}
	})
}

// TestConnectCancelledLate: if ctx ends while the command of any stage is outstanding, Connect fails because of that,
// even if the controller answers the command while its connection is being closed.
func TestConnectCancelledLate(t *testing.T) {
	for at := 0; ; at++ {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFakeTarget()
		cancelled, seen := "", 0 // two queues are never being served at once before Connect has returned
		f.hook = func(q *fakeQueue, r *Request, _ *nvme.Completion) verdict {
			if ctx.Err() != nil || r.Cmd.Opcode() == nvme.OpAsyncEvent {
				return usual
			}
			if seen++; seen > at {
				cancelled = r.Cmd.Name(0)
				cancel()
				<-q.stop
			}
			return usual
		}
		cfg := f.config()
		cfg.KATO = -1
		c, err := Connect(ctx, cfg)
		if seen <= at { // ctx outlived all of them
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			closeController(t, c)
			return
		}
		var stage *ConnectError
		if !errors.As(err, &stage) || !errors.Is(err, context.Canceled) || errors.Is(err, ErrTimeout) {
			t.Errorf("cancelled during %s: %v", cancelled, err)
		}
		if err == nil {
			_ = c.Close()
		}
	}
}

func TestConfigValidate(t *testing.T) {
	f := newFakeTarget()
	good := f.config()
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*Config){
		"Transport":      func(c *Config) { c.Transport = nil },
		"Remote":         func(c *Config) { c.Remote = netip.AddrPort{} },
		"Queues":         func(c *Config) { c.Queues = -1 },
		"QueueSize":      func(c *Config) { c.QueueSize = 1 },
		"KATO":           func(c *Config) { c.KATO = time.Microsecond },
		"SubNQN":         func(c *Config) { c.SubNQN = "my disk" },
		"HostNQN":        func(c *Config) { c.HostNQN = "me" },
		"ConnectTimeout": func(c *Config) { c.IOTimeout = -1 },
	} {
		c := good
		change(&c)
		err := c.Validate()
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), field) || strings.Count(err.Error(), "nvme: ") != 1 {
			t.Errorf("%s: %v", field, err)
		}
	}
	for field, change := range map[string]func(*Config){
		"Local":     func(c *Config) { c.Local = netip.IPv6Loopback() },
		"QueueSize": func(c *Config) { c.QueueSize = 1<<16 + 1 }, // SQSIZE has 16 bits, and is 0's based
		"KATO":      func(c *Config) { c.KATO = 99 * time.Millisecond },
	} {
		c := good
		change(&c)
		if err := c.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.Local = netip.MustParseAddr("::ffff:127.0.0.2") },
		func(c *Config) { c.QueueSize, c.KATO = 2, 100*time.Millisecond },
		func(c *Config) { c.QueueSize, c.KATO = 1<<16, 24*time.Hour },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
	d := (Config{HostNQN: testHostNQN, SubNQN: nvme.DiscoveryNQN}).withDefaults()
	if d.HostID.NQN() != testHostNQN || d.KATO != 0 || d.QueueSize != 128 || d.Queues == 0 {
		t.Errorf("defaults %+v", d)
	}
	d = Config{HostNQN: "nqn.2024-01.com.example:host", SubNQN: testNQN}.withDefaults()
	if d.HostID.IsZero() || d.HostNQN != "nqn.2024-01.com.example:host" {
		t.Errorf("defaults %+v: Connect needs a host identifier", d)
	}
	d = Config{SubNQN: testNQN}.withDefaults()
	if nvme.CheckNQN(d.HostNQN) != nil || d.HostID.NQN() != d.HostNQN || d.KATO != 5*time.Second {
		t.Errorf("defaults %+v", d)
	}
}

// TestInCapsuleOverRDMA: over RDMA, data goes in capsules only if the controller supports the offset form of the
// descriptor (SGLS bit 20), however much room IOCCSZ reports.
func TestInCapsuleOverRDMA(t *testing.T) {
	for _, c := range []struct {
		sgls nvme.SGLS
		want int
	}{
		{nvme.SGLSSupported | nvme.SGLSKeyed, 0},
		{nvme.SGLSSupported | nvme.SGLSKeyed | nvme.SGLSInCapsuleOffs, 4096},
	} {
		f := newFakeTarget()
		f.kind, f.identity.SGLS = nvme.TransportRDMA, c.sgls
		h := connect(t, f)
		if got := h.Limits().InCapsule; got != c.want {
			t.Errorf("SGLS %#x: %d bytes in a capsule, want %d", c.sgls, got, c.want)
		}
		closeController(t, h)
	}
}

// TestShortProperty: the value of a 4-byte property is dword 0; dword 1 is reserved.
func TestShortProperty(t *testing.T) {
	f := newFakeTarget()
	f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		if r.Cmd.Opcode() != nvme.OpFabrics || r.Cmd.FCType() != nvme.FCPropertyGet || r.Cmd.Property() != nvme.PropVS {
			return usual
		}
		cqe.SetResult(0xdead<<32 | uint64(nvme.Version1_4))
		return answered
	})
	c := connect(t, f)
	if v, err := c.Property(t.Context(), nvme.PropVS); err != nil || v != uint64(nvme.Version1_4) {
		t.Errorf("%#x, %v", v, err)
	}
	closeController(t, c)
}

// TestConnectAttributes: what Connect and the underlying connection say about a queue.
func TestConnectAttributes(t *testing.T) {
	for _, off := range []bool{false, true} {
		f := newFakeTarget()
		c := connect(t, f, func(c *Config) { c.DisableSQFlow = off })
		for i, q := range f.queues {
			want := uint16(0) // the admin queue doesn't belong to a controller yet
			if i > 0 {
				want = c.CNTLID()
			}
			if q.attr.CNTLID != want || int(q.attr.QID) != i {
				t.Errorf("queue %d of controller %d, want queue %d of %d", q.attr.QID, q.attr.CNTLID, i, want)
			}
		}
		connects := 0
		for _, cmd := range f.arrived() {
			if cmd.Opcode() == nvme.OpFabrics && cmd.FCType() == nvme.FCConnect {
				connects++
				if got := cmd.ConnectCATTR()&nvme.CATTRNoSQFlowControl != 0; got != off {
					t.Errorf("queue %d: flow control disabled %v, want %v", cmd.ConnectQID(), got, off)
				}
			}
		}
		if connects != 3 {
			t.Errorf("%d Connects", connects)
		}
		closeController(t, c)
		for _, q := range f.queues {
			select {
			case <-q.ended:
			default:
				t.Errorf("queue %d is still there after Close", q.attr.QID)
			}
		}
	}
}
