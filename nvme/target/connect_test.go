package target

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

const dnr = nvme.StatusDNR

const (
	closedNQN      = "nqn.2024-01.com.example:closed" // to our host
	otherNQN       = "nqn.2024-01.com.example:other"
	connectInvalid = nvme.StatusConnectInvalidParameter | dnr
	// gone is for a controller that may have ended since its host made it. Linux hosts don't connect again after Do Not
	// Retry, since 6.10 (nvmf_should_reconnect).
	gone = nvme.StatusConnectInvalidParameter
)

// connectRig is a target with controllers that a Connect may name.
type connectRig struct {
	t         *testing.T
	tg        *Target
	s         *session // enabled, with an I/O queue
	idle      uint16   // a controller that isn't enabled
	discovery uint16   // a discovery controller
}

func newConnectRig(t *testing.T) *connectRig {
	t.Helper()
	tg := newTargetWith(t, func(c *Config) {
		c.Subsystems = append(c.Subsystems,
			SubsystemConfig{NQN: closedNQN, Hosts: []string{"nqn.2024-01.com.example:friend"}},
			SubsystemConfig{NQN: otherNQN, AllowAnyHost: true})
		c.Limits.Queues = 4
	}, newTestVolume(1<<20, 512))
	r := &connectRig{t: t, tg: tg, s: connect(t, tg, testNQN)}
	r.discovery = connectAdmin(dial(t, tg), nvme.DiscoveryNQN, 0)
	idle := dial(t, tg).must(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN))
	r.idle = nvme.ConnectResult(idle.DW0()).CNTLID()
	return r
}

// wrongConnect is what makes a Connect wrong: a change of the command or its data, or the connection that carries it.
type wrongConnect struct {
	name   string
	change func(c *nvme.Command, d []byte)
	attr   func(*ConnAttr)
	status nvme.Status
	result nvme.ConnectInvalid
}

// refusals returns how many Connects the target has refused.
func (r *connectRig) refusals() (n uint64) {
	for _, s := range r.tg.Snapshot().Transports {
		n += s.RefusedConnects
	}
	return n
}

// refuse sends a Connect that would succeed, except for what tc changes.
func (r *connectRig) refuse(cmd nvme.Command, cntlid uint16, tc wrongConnect) {
	r.t.Run(tc.name, func(t *testing.T) {
		c := dial(t, r.tg, func(c *fakeConn) {
			if tc.attr != nil {
				tc.attr(&c.attr)
			}
		})
		data := connectData(t, cntlid, testNQN)
		if tc.change != nil {
			tc.change(&cmd, data)
		}
		refused := r.refusals()
		cqe := c.fails(cmd, data, tc.status)
		if n := r.refusals() - refused; n != 1 {
			t.Errorf("%d refusals were counted", n)
		}
		if got := nvme.ConnectInvalid(cqe.DW0()); got != tc.result {
			t.Errorf("result %v (%#x), want %v", got, uint32(got), tc.result)
		}
		c.hangUp(nil)
	})
}

func put16(b []byte, v uint16) { b[0], b[1] = byte(v), byte(v>>8) }

// setName puts a name into Connect data.
func setName(b []byte, off int, s string) {
	clear(b[off : off+256])
	copy(b[off:], s)
}

// TestConnectRefused: each wrong field has its status, and the response says where it is, if the status is Connect
// Invalid Parameters: dword 0 is reserved with others. A Connect never fails with Invalid Field in Command (NVMe base,
// "Connect Command and Response").
func TestConnectRefused(t *testing.T) {
	r := newConnectRig(t)
	for _, tc := range []wrongConnect{
		{"record format", func(c *nvme.Command, _ []byte) { c[40] = 1 }, nil, nvme.StatusConnectFormat | dnr, 0},
		{"static controller", func(_ *nvme.Command, d []byte) { put16(d[16:], 1) }, nil, connectInvalid, nvme.InvalidData(16)},
		{"unknown subsystem", func(_ *nvme.Command, d []byte) { setName(d, 256, "nqn.2024-01.com.example:none") }, nil, connectInvalid, nvme.InvalidData(256)},
		{"no subsystem name", func(_ *nvme.Command, d []byte) { setName(d, 256, "") }, nil, connectInvalid, nvme.InvalidData(256)},
		{"endless subsystem name", func(_ *nvme.Command, d []byte) { setName(d, 256, strings.Repeat("n", 256)) }, nil, connectInvalid, nvme.InvalidData(256)},
		{"no host name where it decides", func(_ *nvme.Command, d []byte) { setName(d, 256, closedNQN); setName(d, 512, "") }, nil, nvme.StatusConnectInvalidHost | dnr, 0},
		{"host name that can't be printed", func(_ *nvme.Command, d []byte) { setName(d, 512, "nqn.\xff") }, nil, connectInvalid, nvme.InvalidData(512)},
		{"host name that reorders what is printed", func(_ *nvme.Command, d []byte) { setName(d, 512, "nqn.\u202e") }, nil, connectInvalid, nvme.InvalidData(512)},
		{"host name with a line break", func(_ *nvme.Command, d []byte) { setName(d, 512, "nqn.\n") }, nil, connectInvalid, nvme.InvalidData(512)},
		{"endless host name", func(_ *nvme.Command, d []byte) { setName(d, 512, strings.Repeat("n", 256)) }, nil, connectInvalid, nvme.InvalidData(512)},
		{"host not allowed", func(_ *nvme.Command, d []byte) { setName(d, 256, closedNQN) }, nil, nvme.StatusConnectInvalidHost | dnr, 0},
		{"queue of one", func(c *nvme.Command, _ []byte) { put16(c[44:], 0) }, nil, connectInvalid, nvme.InvalidCommand(44)},
		{"queue too large", func(c *nvme.Command, _ []byte) { put16(c[44:], 128) }, nil, connectInvalid, nvme.InvalidCommand(44)},
		{"fused", func(c *nvme.Command, _ []byte) { c[1] |= 1 }, nil, connectInvalid, nvme.InvalidCommand(1)},
		{"PRP", func(c *nvme.Command, _ []byte) { c[1] = 0 }, nil, connectInvalid, nvme.InvalidCommand(1)},
		{"another queue than the connection's", nil, func(a *ConnAttr) { a.QID = 1 }, connectInvalid, nvme.InvalidCommand(42)},
	} {
		r.refuse(connectCommand(0, 31, 0), nvme.CNTLIDDynamic, tc)
	}
	r.s.close()
}

// TestTargetStartedAnew: a host that made its controller before the target was restarted, and connects an I/O queue of
// it afterwards, may try again.
func TestTargetStartedAnew(t *testing.T) {
	before := connectAdmin(dial(t, newTarget(t)), testNQN, 0)
	cqe := dial(t, newTarget(t)).fails(connectCommand(1, 31, 0), connectData(t, before, testNQN), gone)
	if got := nvme.ConnectInvalid(cqe.DW0()); got != nvme.InvalidData(16) {
		t.Errorf("result %v", got)
	}
}

// TestControllerEndsMeanwhile: so may a host whose controller ends while an I/O queue of it is being connected.
func TestControllerEndsMeanwhile(t *testing.T) {
	tg := newTarget(t)
	admin := dial(t, tg)
	c := tg.controller(connectAdmin(admin, testNQN, 0))
	admin.hangUp(nil)
	if no := c.reserve(1, nil); no == nil || no.status != gone || no.where != nvme.InvalidData(16) {
		t.Errorf("%+v", no)
	}
}

// TestIOConnectRefused is TestConnectRefused for I/O queues.
func TestIOConnectRefused(t *testing.T) {
	r := newConnectRig(t)
	for _, tc := range []wrongConnect{
		{"no such controller", func(_ *nvme.Command, d []byte) { put16(d[16:], r.s.cntlid+100) }, nil, gone, nvme.InvalidData(16)},
		{"dynamic controller", func(_ *nvme.Command, d []byte) { put16(d[16:], 0xffff) }, nil, gone, nvme.InvalidData(16)},
		{"controller of another subsystem", func(_ *nvme.Command, d []byte) { setName(d, 256, otherNQN) }, nil, gone, nvme.InvalidData(16)},
		{"controller of another host", func(_ *nvme.Command, d []byte) { setName(d, 512, testHost+"x") }, nil, connectInvalid, nvme.InvalidData(512)},
		{"another host ID", func(_ *nvme.Command, d []byte) { d[0]++ }, nil, connectInvalid, nvme.InvalidData(0)},
		{"another controller than the connection's", nil, func(a *ConnAttr) { a.CNTLID = int(r.s.cntlid) + 1 }, connectInvalid, nvme.InvalidData(16)},
		{"controller over another transport", nil, func(a *ConnAttr) { a.Transport = nvme.TransportRDMA }, connectInvalid, nvme.InvalidData(16)},
		{"queue ID too large", func(c *nvme.Command, _ []byte) { put16(c[42:], 5) }, nil, connectInvalid, nvme.InvalidCommand(42)},
		{"I/O queue of one", func(c *nvme.Command, _ []byte) { put16(c[44:], 0) }, nil, connectInvalid, nvme.InvalidCommand(44)},
		{"I/O queue too large", func(c *nvme.Command, _ []byte) { put16(c[44:], 128) }, nil, connectInvalid, nvme.InvalidCommand(44)},
		{"queue exists", func(c *nvme.Command, _ []byte) { put16(c[42:], 1) }, nil, nvme.StatusCommandSequence | dnr, 0},
		{"controller not enabled", func(_ *nvme.Command, d []byte) { put16(d[16:], r.idle) }, nil, connectInvalid, nvme.InvalidCommand(42)},
		{"I/O queue of discovery", func(_ *nvme.Command, d []byte) {
			put16(d[16:], r.discovery)
			setName(d, 256, nvme.DiscoveryNQN)
		}, nil, connectInvalid, nvme.InvalidCommand(42)},
	} {
		r.refuse(connectCommand(2, 127, 0), r.s.cntlid, tc)
	}
	r.s.addQueue(t, r.tg, 4, testNQN) // the last
	known := dial(t, r.tg, func(c *fakeConn) { c.attr.CNTLID, c.attr.QID = int(r.s.cntlid), 3 })
	known.must(connectCommand(3, 1, 0), connectData(t, r.s.cntlid, testNQN)) // the smallest
	again := connectData(t, r.s.cntlid, testNQN)
	clear(again[:16]) // no host ID is as good as the same
	dial(t, r.tg).must(connectCommand(2, 31, 0), again)
	r.s.close()
}

// TestConnectAfterRefusal: the host may try again on the same connection.
func TestConnectAfterRefusal(t *testing.T) {
	tg := newTarget(t)
	c := dial(t, tg)
	c.fails(connectCommand(0, 0, 0), connectData(t, nvme.CNTLIDDynamic, testNQN), nvme.StatusConnectInvalidParameter|dnr)
	c.fails(connectCommand(0, 31, 0), make([]byte, 100), nvme.StatusSGLLengthInvalid|dnr)
	c.pullErr = errors.New("no data")
	c.fails(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN), nvme.StatusDataTransferError)
	c.pullErr = nil
	connectAdmin(c, testNQN, 0)
}

// TestConnectInCapsule: hosts send the data of Connect in its capsule, as Linux does over TCP.
func TestConnectInCapsule(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	admin, io := dial(t, tg), dial(t, tg)
	capsule := func(qid uint16) nvme.Command { return inCapsule(connectCommand(qid, 31, 0), nvme.ConnectDataSize) }
	cqe := admin.must(capsule(0), connectData(t, nvme.CNTLIDDynamic, testNQN))
	admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	io.must(capsule(1), connectData(t, nvme.ConnectResult(cqe.DW0()).CNTLID(), testNQN))
	io.must(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512))
}

// TestConnectTwice: a queue takes one Connect, also while the data of the first has yet to be fetched (NVMe base,
// "Connect Command": Command Sequence Error).
func TestConnectTwice(t *testing.T) {
	c := dial(t, newTarget(t), func(c *fakeConn) { c.holdPull = true })
	data := connectData(t, nvme.CNTLIDDynamic, testNQN)
	first := c.start(connectCommand(0, 31, 0), data)
	c.fails(connectCommand(0, 31, 0), data, nvme.StatusCommandSequence|dnr)
	if first.answered() {
		t.Fatal("the first was answered without its data")
	}
	c.come()
	if st := first.wait().Status(); st != nvme.StatusSuccess {
		t.Errorf("the first: status %#x", uint16(st))
	}
	c.fails(connectCommand(0, 31, 0), data, nvme.StatusCommandSequence|dnr)
	c.must(getProperty(nvme.PropCSTS), nil)
}

// TestConnectWithoutHostName: if any host may connect, one that gives no NQN may as well, as spdk_nvme_perf does.
func TestConnectWithoutHostName(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	nameless := func(cntlid uint16) []byte {
		d := connectData(t, cntlid, testNQN)
		clear(d[512:768])
		return d
	}
	admin := dial(t, tg)
	cqe := admin.must(connectCommand(0, 31, 0), nameless(nvme.CNTLIDDynamic))
	admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	cntlid := nvme.ConnectResult(cqe.DW0()).CNTLID()
	io := dial(t, tg)
	cqe = io.fails(connectCommand(1, 31, 0), connectData(t, cntlid, testNQN), nvme.StatusConnectInvalidParameter|dnr)
	if got := nvme.ConnectInvalid(cqe.DW0()); got != nvme.InvalidData(512) {
		t.Errorf("the queue of a host with a name: %v", got)
	}
	io.must(connectCommand(1, 31, 0), nameless(cntlid))
	if c := tg.Snapshot().Subsystems[0].Controllers; len(c) != 1 || c[0].HostNQN != "" {
		t.Errorf("%+v", c)
	}
}

// TestOrder: which commands may be sent in which state.
func TestOrder(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	identify := command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) })
	page := make([]byte, 4096)
	c := dial(t, tg)
	c.fails(identify, page, nvme.StatusInvalidOpcode|dnr)
	c.fails(getProperty(nvme.PropCAP), nil, nvme.StatusInvalidOpcode|dnr)
	connected := connectCommand(0, 31, 0)
	data := connectData(t, nvme.CNTLIDDynamic, testNQN)
	// Others have the lowest byte of their NSID where Connect has FCTYPE.
	c.fails(command(func(c *nvme.Command) { c.SetIO(nvme.OpWrite, uint32(nvme.FCConnect), 0, 2, 0) }), data, nvme.StatusInvalidOpcode|dnr)
	c.must(connected, data)
	c.fails(connected, data, nvme.StatusCommandSequence|dnr)
	c.fails(identify, page, nvme.StatusCommandSequence|dnr)
	c.fails(command(func(c *nvme.Command) { c.SetAsyncEvent() }), nil, nvme.StatusCommandSequence|dnr)
	c.must(getProperty(nvme.PropCAP), nil)
	c.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	c.must(identify, page)
	noSGL := identify
	noSGL.SetFlags(0)
	c.fails(noSGL, page, nvme.StatusInvalidField|dnr)
	fused := identify
	fused.SetFlags(nvme.FlagsSGL | 1)
	c.fails(fused, page, nvme.StatusInvalidField|dnr)
	c.fails(command(func(c *nvme.Command) { c.SetDisconnect() }), nil, nvme.StatusInvalidQueueType|dnr)
	for _, fc := range []nvme.FCType{nvme.FCAuthSend, nvme.FCAuthReceive, 0x42} {
		c.fails(command(func(c *nvme.Command) { c.SetDisconnect(); c.SetFCType(fc) }), nil, nvme.StatusInvalidField|dnr)
	}
	for _, op := range []nvme.Opcode{nvme.OpNSManagement, 0x14, 0, 1, 4, 5, 0xff} {
		c.fails(command(func(c *nvme.Command) { c.SetFlush(0); c.SetOpcode(op) }), nil, nvme.StatusInvalidOpcode|dnr)
	}
}

func TestProperties(t *testing.T) {
	tg := newTarget(t)
	c := dial(t, tg)
	connectAdmin(c, testNQN, 0)
	for _, p := range []nvme.Property{nvme.PropNSSR, nvme.PropCRTO, 4, 0x0c, 0x24, 0x1000, 0xffffffff} {
		c.fails(getProperty(p), nil, nvme.StatusInvalidField|dnr)
	}
	for _, p := range []nvme.Property{nvme.PropCAP, nvme.PropVS, nvme.PropCSTS, nvme.PropNSSR, 0x24} {
		c.fails(setProperty(p, 0x4e564d65), nil, nvme.StatusInvalidField|dnr)
	}
	wrongSize := func(cmd nvme.Command, size byte) nvme.Command { cmd[40] = size; return cmd }
	c.fails(wrongSize(getProperty(nvme.PropCAP), 0), nil, nvme.StatusInvalidField|dnr)
	c.fails(wrongSize(getProperty(nvme.PropVS), 1), nil, nvme.StatusInvalidField|dnr)
	c.fails(wrongSize(getProperty(nvme.PropVS), 2), nil, nvme.StatusInvalidField|dnr)
	c.fails(wrongSize(setProperty(nvme.PropCC, 0), 1), nil, nvme.StatusInvalidField|dnr)
}

// TestEnable: a CC that asks for something unsupported is fatal, until CC.EN is cleared.
func TestEnable(t *testing.T) {
	tg := newTarget(t)
	c := dial(t, tg)
	c.must(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN))
	csts := func() nvme.CSTS { return nvme.CSTS(c.must(getProperty(nvme.PropCSTS), nil).DW0()) }
	for _, cc := range []nvme.CC{nvme.CCEnable, nvme.CCFabrics | nvme.CCCSSNone, nvme.CCFabrics | 1<<4,
		nvme.CCFabrics | 1<<7, nvme.CCFabrics | 1<<11, 7<<16 | nvme.CCIOCQES16, nvme.CCIOSQES64 | 6<<20} {
		c.must(setProperty(nvme.PropCC, uint64(cc|nvme.CCEnable)), nil)
		if s := csts(); !s.Fatal() || s.Ready() {
			t.Errorf("CC %#x: CSTS %#x", uint32(cc), uint32(s))
		}
		c.must(setProperty(nvme.PropCC, uint64(cc|nvme.CCEnable|nvme.CCSHNNormal)), nil)
		if s := csts(); !s.Fatal() || s.Ready() || s.Shutdown() != nvme.CSTSShutdownComplete {
			t.Errorf("CC %#x: CSTS %#x after a shutdown", uint32(cc), uint32(s))
		}
		c.must(setProperty(nvme.PropCC, 0), nil)
		if s := csts(); s != 0 {
			t.Errorf("CSTS %#x after reset", uint32(s))
		}
	}
	c.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	if s := csts(); s != nvme.CSTSReady {
		t.Errorf("CSTS %#x", uint32(s))
	}
	// A discovery controller has no I/O queues whose entries would have a size.
	c = dial(t, tg)
	c.must(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, nvme.DiscoveryNQN))
	c.must(setProperty(nvme.PropCC, uint64(nvme.CCEnable)), nil)
	if s := csts(); s != nvme.CSTSReady {
		t.Errorf("CSTS %#x of a discovery controller", uint32(s))
	}
}

// TestEnableAllCommandSets: a host may choose all command sets although CAP doesn't offer that, as TrueNAS's client does
// for every controller; the targets of Linux and SPDK become ready.
func TestEnableAllCommandSets(t *testing.T) {
	tg := newTarget(t)
	for _, nqn := range []string{testNQN, nvme.DiscoveryNQN} {
		c := dial(t, tg)
		c.must(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, nqn))
		c.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCCSSAll)), nil)
		c.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCCSSAll|nvme.CCEnable)), nil)
		if s := nvme.CSTS(c.must(getProperty(nvme.PropCSTS), nil).DW0()); s != nvme.CSTSReady {
			t.Errorf("%s: CSTS %#x", nqn, uint32(s))
		}
	}
}

// TestQueueHead: SQHD counts completions modulo the size. Without flow control it is FFFFh for Connect, and then 0.
func TestQueueHead(t *testing.T) {
	tg := newTarget(t)
	c := dial(t, tg)
	if h := c.must(connectCommand(0, 4, 0), connectData(t, nvme.CNTLIDDynamic, testNQN)).SQHD(); h != 1 {
		t.Errorf("SQHD %d after Connect, want 1", h)
	}
	for i := 2; i < 12; i++ {
		get := getProperty(nvme.PropCSTS)
		get.SetCID(uint16(0xa000 + i))
		cqe := c.must(get, nil)
		if cqe.SQHD() != uint16(i%5) || cqe.CID() != uint16(0xa000+i) || cqe.SQID() != 0 {
			t.Errorf("command %d: SQHD %d CID %#x SQID %d", i, cqe.SQHD(), cqe.CID(), cqe.SQID())
		}
	}
	s := connect(t, tg, testNQN)
	if id := s.io.must(command(func(c *nvme.Command) { c.SetFlush(nvme.NSIDAll) }), nil).SQID(); id != 0 {
		t.Errorf("SQID %d, a reserved field", id)
	}
	s.close()
	c = dial(t, tg)
	cmd := command(func(c *nvme.Command) { c.SetConnect(0, 31, nvme.CATTRNoSQFlowControl, 0) })
	if h := c.must(cmd, connectData(t, nvme.CNTLIDDynamic, testNQN)).SQHD(); h != 0xffff {
		t.Errorf("SQHD %#x after Connect without flow control", h)
	}
	if h := c.must(getProperty(nvme.PropCSTS), nil).SQHD(); h != 0 {
		t.Errorf("SQHD %#x without flow control", h)
	}
}

func TestLimits(t *testing.T) {
	tg := newTargetWith(t, func(c *Config) {
		c.Limits = Limits{Connections: 4, Controllers: 3}
		c.Subsystems[0].MaxControllers = 2
		c.Subsystems = append(c.Subsystems, SubsystemConfig{NQN: testNQN + "2", AllowAnyHost: true})
	})
	var cs []*fakeConn
	for range 4 {
		cs = append(cs, dial(t, tg))
	}
	if _, err := tg.NewQueue(&fakeConn{attr: attr(nvme.TransportTCP)}); !errors.Is(err, ErrLimit) {
		t.Errorf("fifth connection: %v", err)
	}
	connectAdmin(cs[0], testNQN, 0)
	connectAdmin(cs[1], testNQN, 0)
	// A place may become free: no reason for the host to give up for good.
	cs[2].fails(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN), nvme.StatusConnectBusy)
	connectAdmin(cs[2], testNQN+"2", 0)
	cs[3].fails(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN+"2"), nvme.StatusConnectBusy)
	cs[0].hangUp(nil)
	connectAdmin(cs[3], testNQN, 0)
	if s := tg.Snapshot(); s.Connections != 3 || s.Controllers != 3 || s.Transports[0].RefusedConnects != 2 {
		t.Errorf("%d connections, %d controllers, %d refused", s.Connections, s.Controllers, s.Transports[0].RefusedConnects)
	}
}

// byValue is a volume that can't be compared.
type byValue struct {
	blockdev.Memory
	info blockdev.Info
	_    []byte
}

func (v byValue) Info() blockdev.Info { return v.info }

func TestConfigRejected(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	odd := newTestVolume(1<<20, 512)
	odd.info.BlockSize = 520
	uneven := newTestVolume(1<<20, 512)
	uneven.info.Size++
	empty := newTestVolume(1<<20, 512)
	empty.info.Size = 0
	ns := func(c ...NamespaceConfig) Config {
		return Config{Subsystems: []SubsystemConfig{{NQN: testNQN, Namespaces: c}}}
	}
	for name, c := range map[string]Config{
		"bad NQN":             {Subsystems: []SubsystemConfig{{NQN: "disk"}}},
		"discovery NQN":       {Subsystems: []SubsystemConfig{{NQN: nvme.DiscoveryNQN}}},
		"same subsystem":      {Subsystems: []SubsystemConfig{{NQN: testNQN}, {NQN: testNQN}}},
		"long serial":         {Subsystems: []SubsystemConfig{{NQN: testNQN, Serial: strings.Repeat("1", 21)}}},
		"model not ASCII":     {Subsystems: []SubsystemConfig{{NQN: testNQN, Model: "é"}}},
		"long firmware":       {Subsystems: []SubsystemConfig{{NQN: testNQN, Firmware: "123456789"}}},
		"bad host":            {Subsystems: []SubsystemConfig{{NQN: testNQN, Hosts: []string{"me"}}}},
		"negative limit":      {Subsystems: []SubsystemConfig{{NQN: testNQN, MaxControllers: -1}}},
		"no volume":           ns(NamespaceConfig{}),
		"large NSID":          ns(NamespaceConfig{NSID: MaxNSID + 1, Volume: v}),
		"same NSID":           ns(NamespaceConfig{NSID: 1, Volume: v}, NamespaceConfig{NSID: 1, Volume: v}),
		"block size":          ns(NamespaceConfig{Volume: odd}),
		"size":                ns(NamespaceConfig{Volume: uneven}),
		"no blocks":           ns(NamespaceConfig{Volume: empty}),
		"volume by value":     ns(NamespaceConfig{Volume: byValue{info: v.info}}),
		"port without addr":   {Ports: []Port{{Transport: nvme.TransportTCP}}},
		"port transport":      {Ports: []Port{{Transport: 9}}},
		"connections":         {Limits: Limits{Connections: -1}},
		"controllers":         {Limits: Limits{Controllers: 1 << 16}},
		"queues":              {Limits: Limits{Queues: 1 << 16}},
		"depth":               {Limits: Limits{QueueDepth: 16}},
		"negative connect to": {Limits: Limits{ConnectTimeout: -time.Second}},
	} {
		_, err := New(c)
		if !errors.Is(err, ErrConfig) || strings.Count(err.Error(), ErrConfig.Error()) != 1 || strings.Contains(err.Error(), "namespace 0") {
			t.Errorf("%s: %v", name, err)
		}
		if name == "no blocks" && !strings.Contains(err.Error(), "at least one block") { // 0 is a multiple of 512
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSnapshotDuringConnect: a queue can be counted from the moment at which its controller has it, before Connect is
// granted.
func TestSnapshotDuringConnect(t *testing.T) {
	tg := newTarget(t)
	s := connect(t, tg, testNQN)
	admin, io := dial(t, tg), dial(t, tg)
	c, no := tg.newController(admin.q, tg.Subsystem(testNQN), &nvme.ConnectData{HostNQN: "nqn.2024-01.com.example:other", SubNQN: testNQN})
	if no != nil {
		t.Fatal(no.why)
	}
	defer c.destroy(nil)
	had := tg.controller(s.cntlid)
	if no := had.reserve(7, io.q); no != nil {
		t.Fatal(no.why)
	}
	defer had.drop(7, io.q)
	for _, c := range tg.Snapshot().Subsystems[0].Controllers {
		for _, q := range c.Queues {
			if q.InFlight != 0 {
				t.Errorf("controller %d, queue %d: %d commands in flight", c.CNTLID, q.QID, q.InFlight)
			}
		}
	}
}
