package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// sglRig is a target, an honest host, and the RNIC of a host whose capsules are made by hand.
type sglRig struct {
	t        *testing.T
	net      *simnet.Network
	tn, hn   *simNIC
	listener *rdma.Listener
	target   *target.Target
	honest   *replayHost
}

func newSGLRig(t *testing.T, cfg rdma.TargetConfig) *sglRig {
	t.Helper()
	n := simNetwork(false)
	r := &sglRig{t: t, net: n, tn: newSimNIC(t, n, simTarget), hn: newSimNIC(t, n, simHost)}
	var err error
	r.target, err = target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: memory(t, 4*replayPart)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	r.listener = listen(t, r.tn, simNVMe, r.target, cfg)
	r.honest = newReplayHost(t, n, replayOther, 2*replayPart)
	r.honest.connect()
	return r
}

func (r *sglRig) close() {
	r.t.Helper()
	r.honest.work('h') // whatever the other did
	r.honest.close()
	r.hn.close(r.t)
	if err := errors.Join(r.listener.Close(), r.target.Close(context.Background())); err != nil {
		r.t.Error(err)
	}
	r.tn.close(r.t)
}

const (
	sglTransfer = 32768 // of a command, at most
	sglBlock    = 512
)

// sglQueue is a queue whose host sends any capsule.
type sglQueue struct {
	rawPeer
	answers chan nvme.Completion
	sent    int
	end     int // of the capsules
}

func (r *sglRig) queue(qid byte) *sglQueue { return r.queueOf(qid, 0) }

// queueOf makes a queue whose connection request names a controller, or, with 0, none.
func (r *sglRig) queueOf(qid byte, cntlid uint16) *sglQueue {
	r.t.Helper()
	q := &sglQueue{rawPeer: rawPeer{t: r.t}, answers: make(chan nvme.Completion, rawRecvs)}
	q.recv = func(index, n int) {
		var cqe nvme.Completion
		copy(cqe[:], q.area(index*rawRecvSize, n))
		q.answers <- cqe
	}
	q.dialTarget(r.hn, qid, cntlid)
	return q
}

// connectData is what the wrong host says of itself.
func connectData() *nvme.ConnectData {
	return &nvme.ConnectData{CNTLID: nvme.CNTLIDDynamic, SubNQN: testNQN, HostNQN: "nqn.2014-08.org.nvmexpress:uuid:1", HostID: nvme.HostID{1}}
}

// connect sends Connect, and makes d name the resulting controller.
func (q *sglQueue) connect(d *nvme.ConnectData, qid uint16, kato uint32, want nvme.Status) {
	q.t.Helper()
	if _, err := d.AppendTo(q.data(0, nvme.ConnectDataSize)[:0]); err != nil {
		q.t.Fatal(err)
	}
	var cmd nvme.Command
	cmd.SetConnect(qid, 31, 0, kato)
	q.key(&cmd, 0, nvme.ConnectDataSize)
	cqe := q.do("Connect", cmd, nil, want)
	if want == nvme.StatusSuccess {
		d.CNTLID = nvme.ConnectResult(cqe.DW0()).CNTLID()
	}
}

// enable enables the controller of an admin queue.
func (q *sglQueue) enable() {
	q.t.Helper()
	var cmd nvme.Command
	cmd.SetPropertySet(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable))
	q.do("Property Set", cmd, nil, nvme.StatusSuccess)
}

// controller makes an admin queue, and an I/O queue of the same controller, which has a keep alive
// timeout in milliseconds or, with 0, none.
func (r *sglRig) controller(kato uint32) (admin, io *sglQueue) {
	r.t.Helper()
	d := connectData()
	admin = r.queue(0)
	admin.connect(d, 0, kato, nvme.StatusSuccess)
	admin.enable()
	io = r.queue(1)
	io.connect(d, 1, kato, nvme.StatusSuccess)
	return admin, io
}

// TestControllerOfPrivateData: a queue belongs to the controller that its connection request named, if it named one.
func TestControllerOfPrivateData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer})
		defer r.close()
		admin, io := r.controller(0)
		d := connectData()
		other := r.queue(0)
		other.connect(d, 0, 0, nvme.StatusSuccess)
		other.enable()
		wrong := r.queueOf(1, d.CNTLID-1)
		wrong.connect(d, 1, 0, nvme.StatusConnectInvalidParameter)
		right := r.queueOf(1, d.CNTLID)
		right.connect(d, 1, 0, nvme.StatusSuccess)
		for _, q := range []*sglQueue{right, wrong, other, io, admin} {
			q.close()
		}
	})
}

// sglData is where the data of the host's commands begins in its memory; the capsules follow it.
const (
	sglData     = rawRecvs * rawRecvSize
	sglCapsules = sglData + sglTransfer
	sglEnd      = sglData + rawData // of what is registered
)

// data is the host's memory for data.
func (q *sglQueue) data(off, n int) []byte { return q.area(sglData+off, n) }

// key makes the SGL of cmd name the host's memory for data.
func (q *sglQueue) key(cmd *nvme.Command, off int, n uint32) {
	cmd.SGL1().SetKeyed(nvme.SGLKeyed, q.mr.Addr()+sglData+uint64(off), n, q.mr.RKey())
}

// send sends a capsule.
func (q *sglQueue) send(cmd nvme.Command, data []byte) {
	q.t.Helper()
	n := nvme.CommandSize + len(data)
	if sglCapsules+q.end+n > sglEnd {
		q.end = 0 // what was sent from there is acknowledged by now
	}
	at := sglCapsules + q.end
	q.end += n
	q.sent++
	cmd.SetCID(uint16(q.sent))
	b := q.area(at, n)
	copy(b[copy(b, cmd[:]):], data)
	q.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: q.sge(at, n)})
}

// sendKeyed sends a command whose data are n bytes of the queue's memory, from at on.
func (q *sglQueue) sendKeyed(cmd nvme.Command, at int, n uint32) {
	q.t.Helper()
	cmd.SetFlags(nvme.FlagsSGL)
	q.key(&cmd, at, n)
	q.send(cmd, nil)
}

// dropReadResponses loses the wrong host's responses to READs.
func dropReadResponses(d *simnet.Datagram) simnet.Action {
	return simnet.Action{Drop: d.Src == simHost && wire.Opcode(d.Payload[0]).Kind() == wire.KindReadResponse}
}

// do sends a capsule with SGLs and expects the status; every error here has DNR set.
func (q *sglQueue) do(what string, cmd nvme.Command, data []byte, want nvme.Status) nvme.Completion {
	q.t.Helper()
	cmd.SetFlags(nvme.FlagsSGL)
	return q.exchange(what, cmd, data, want)
}

// exchange is like do but doesn't change the flags.
func (q *sglQueue) exchange(what string, cmd nvme.Command, data []byte, want nvme.Status) nvme.Completion {
	q.t.Helper()
	q.send(cmd, data)
	cqe := q.answer()
	if want != nvme.StatusSuccess {
		want |= nvme.StatusDNR
	}
	if got := cqe.Status() &^ nvme.StatusMore; got != want || cqe.CID() != uint16(q.sent) {
		q.t.Errorf("%s: status %#x (%v), want %#x (%v)", what, uint16(got), got, uint16(want), want)
	}
	return cqe
}

func (q *sglQueue) answer() nvme.Completion {
	q.t.Helper()
	select {
	case cqe := <-q.answers:
		return cqe
	case <-time.After(time.Minute):
		q.t.Fatal("no answer")
	}
	return nvme.Completion{}
}

// blocks is a Read or Write of n bytes from an offset on.
func blocks(op nvme.Opcode, off, n int) (cmd nvme.Command) {
	cmd.SetIO(op, 1, uint64(off/sglBlock), uint32(n/sglBlock), 0)
	return cmd
}

// fill writes v over the host's memory for data.
func (q *sglQueue) fill(v byte) {
	b := q.data(0, sglTransfer)
	for i := range b {
		b[i] = v
	}
}

// all reports whether b consists only of v.
func all(b []byte, v byte) bool { return bytes.Count(b, []byte{v}) == len(b) }

type setSGL func(q *sglQueue, s *nvme.SGL)

func block(kind nvme.SGLType, addr uint64, n uint32) setSGL {
	return func(_ *sglQueue, s *nvme.SGL) { s.SetBlock(kind, addr, n) }
}

// keyed is the host's memory for data.
func keyed(kind nvme.SGLType, n uint32) setSGL {
	return func(q *sglQueue, s *nvme.SGL) { s.SetKeyed(kind, q.mr.Addr()+sglData, n, q.mr.RKey()) }
}

// wrongSGL is a descriptor of an I/O command of wrongSize bytes, and the expected status.
type wrongSGL struct {
	name   string
	op     nvme.Opcode // 0: Read and Write
	data   []byte      // in the capsule
	set    setSGL
	status nvme.Status
}

const wrongSize = 2048

// wrongSGLs are descriptors that are invalid, or don't fit their command's data.
func wrongSGLs() []wrongSGL {
	const (
		both    = 0
		size    = wrongSize
		field   = nvme.StatusInvalidField
		kind    = nvme.StatusSGLTypeInvalid
		offset  = nvme.StatusSGLOffsetInvalid
		length  = nvme.StatusSGLLengthInvalid
		capsule = nvme.SGLInCapsule
	)
	inline := bytes.Repeat([]byte{0xdd}, size)
	return []wrongSGL{
		{"block at an address", both, nil, block(nvme.SGLDataBlockAddress, 0, size), kind},
		{"block of subtype 2", both, inline, block(2, 0, size), kind},
		{"keyed, subtype 1", both, nil, keyed(0x41, size), kind},
		{"keyed, subtype Eh", both, nil, keyed(0x4e, size), kind},
		{"bit bucket", both, nil, block(0x10, 0, size), kind},
		{"segment", both, nil, block(0x20, 0, 16), kind},
		{"segment in the capsule", both, inline, block(0x21, 0, 16), kind},
		{"last segment", both, nil, block(0x31, 0, 16), kind},
		{"transport", both, nil, block(nvme.SGLTransport, 0, size), kind},
		{"vendor's", both, nil, block(0xf0, 0, size), kind},
		{"data in the capsule of a Read", nvme.OpRead, inline, block(capsule, 0, size), field},
		{"no data in the capsule", nvme.OpWrite, nil, block(capsule, 0, size), offset},
		{"longer than the capsule", nvme.OpWrite, inline[:1024], block(capsule, 0, size), offset},
		{"4 GiB in the capsule", nvme.OpWrite, inline, block(capsule, 0, math.MaxUint32), offset},
		{"from the capsule's end", nvme.OpWrite, inline, block(capsule, size, size), offset},
		{"over the capsule's end", nvme.OpWrite, inline, block(capsule, 512, size), offset},
		{"behind the capsule", nvme.OpWrite, inline, block(capsule, size+1, 0), offset},
		{"offset that overflows", nvme.OpWrite, inline, block(capsule, math.MaxUint64-511, size), offset},
		{"less in the capsule than blocks", nvme.OpWrite, inline, block(capsule, 0, 1024), length},
		{"less memory than blocks", both, nil, keyed(nvme.SGLKeyed, 1024), length},
		{"more memory than blocks", both, nil, keyed(nvme.SGLKeyed, 2*size), length},
		{"16 MiB of memory", both, nil, keyed(nvme.SGLKeyed, nvme.MaxKeyedLength), length},
		{"no memory", both, nil, keyed(nvme.SGLKeyedInvalidate, 0), length},
	}
}

// TestWrongSGL: a descriptor that is invalid, or doesn't fit its command's data, fails only its command. A type, or a
// combination of type and subtype, that isn't supported is an invalid type (NVMe base, "Generic Command Status Values");
// the other statuses are those of Linux's target. Nothing is transferred for it.
func TestWrongSGL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = wrongSize
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer})
		defer r.close()
		admin, io := r.controller(0)
		defer admin.close()
		defer io.close()
		io.fill(0xee)
		for _, tc := range wrongSGLs() {
			for _, op := range []nvme.Opcode{nvme.OpRead, nvme.OpWrite} {
				if tc.op != 0 && tc.op != op {
					continue
				}
				cmd := blocks(op, 0, size)
				tc.set(io, cmd.SGL1())
				io.do(tc.name+" of "+op.IOName(), cmd, tc.data, tc.status)
			}
		}
		for _, psdt := range []byte{0, 0x80, 0xc0} {
			cmd := blocks(nvme.OpWrite, 0, size)
			io.key(&cmd, 0, size)
			cmd.SetFlags(psdt)
			io.exchange("PSDT", cmd, nil, nvme.StatusInvalidField)
		}
		var identify nvme.Command
		identify.SetIdentify(nvme.CNSController, 0, 0, 0)
		for _, set := range []setSGL{keyed(nvme.SGLKeyed, 4095), keyed(nvme.SGLKeyed, 8192), keyed(nvme.SGLKeyed, 0)} {
			set(admin, identify.SGL1())
			admin.do("Identify", identify, nil, nvme.StatusSGLLengthInvalid)
		}
		if !all(io.data(0, sglTransfer), 0xee) || !all(admin.data(nvme.ConnectDataSize, sglTransfer-nvme.ConnectDataSize), 0) {
			t.Error("the host's memory was written")
		}
		good := blocks(nvme.OpRead, 0, size)
		io.key(&good, 0, size)
		io.do("a good one", good, nil, nvme.StatusSuccess)
		if !all(io.data(0, size), 0) {
			t.Error("the volume was written")
		}
	})
}

// outsideSize is the size of each command of TestSGLOutside.
const outsideSize = 2 * sglBlock

// sglOutside are descriptors of memory from base on that isn't, or isn't completely, registered for the command.
var sglOutside = []struct {
	name string
	set  func(q *sglQueue, base uint64, s *nvme.SGL)
}{
	{"over the end", func(q *sglQueue, base uint64, s *nvme.SGL) {
		s.SetKeyed(nvme.SGLKeyed, base+sglEnd-outsideSize+1, outsideSize, q.mr.RKey())
	}},
	{"behind the end", func(q *sglQueue, base uint64, s *nvme.SGL) {
		s.SetKeyed(nvme.SGLKeyed, base+sglEnd, outsideSize, q.mr.RKey())
	}},
	{"over the beginning", func(q *sglQueue, base uint64, s *nvme.SGL) {
		s.SetKeyed(nvme.SGLKeyed, base-1, outsideSize, q.mr.RKey())
	}},
	{"over the last address", func(q *sglQueue, _ uint64, s *nvme.SGL) {
		s.SetKeyed(nvme.SGLKeyed, math.MaxUint64-outsideSize/2+1, outsideSize, q.mr.RKey())
	}},
	{"round to the beginning", func(q *sglQueue, base uint64, s *nvme.SGL) {
		s.SetKeyed(nvme.SGLKeyed, base+1<<63, outsideSize, q.mr.RKey())
	}},
	{"another key", func(q *sglQueue, base uint64, s *nvme.SGL) {
		s.SetKeyed(nvme.SGLKeyed, base, outsideSize, q.mr.RKey()^0x10)
	}},
	{"key 0", func(_ *sglQueue, base uint64, s *nvme.SGL) { s.SetKeyed(nvme.SGLKeyedInvalidate, base, outsideSize, 0) }},
	{"address 0", func(q *sglQueue, _ uint64, s *nvme.SGL) { s.SetKeyed(nvme.SGLKeyed, 0, outsideSize, q.mr.RKey()) }},
}

// TestSGLOutside: memory that the host has not registered for the command is neither read nor written. The host's RNIC
// refuses, which ends the connection before anything can be answered; other hosts and the target continue.
func TestSGLOutside(t *testing.T) {
	for _, tc := range sglOutside {
		for _, op := range []nvme.Opcode{nvme.OpRead, nvme.OpWrite} {
			t.Run(tc.name+" of "+op.IOName(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testSGLOutside(t, op, tc.set) })
			})
		}
	}
}

func testSGLOutside(t *testing.T, op nvme.Opcode, set func(q *sglQueue, base uint64, s *nvme.SGL)) {
	r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer})
	defer r.close()
	admin, io := r.controller(0)
	defer admin.close()
	defer io.close() // checks the bytes around the registered memory
	io.fill(0xee)
	cmd := blocks(op, 0, outsideSize)
	set(io, io.mr.Addr(), cmd.SGL1())
	cmd.SetFlags(nvme.FlagsSGL)
	io.send(cmd, nil)
	if ev := <-io.events; ev.Type != verbs.CMDisconnected {
		t.Errorf("%v instead of the connection's end", ev.Type)
	}
	synctest.Wait()
	if n := len(io.answers); n != 0 {
		t.Errorf("%d answers on a connection that ended", n)
	}
	if !all(io.data(0, sglTransfer), 0xee) {
		t.Error("the host's memory was written")
	}
	if n := r.hn.dev.Counters()[roce.RespRemoteAccessErrors]; n != 1 {
		t.Errorf("the host's RNIC counts %d refusals, want 1", n)
	}
	if n := r.listener.Counters().Failed.Load(); n == 0 {
		t.Error("the target counts no failed connection")
	}
	if !all(r.read(0, outsideSize), 0) {
		t.Error("the volume was written")
	}
}

// read returns what another host reads from the volume.
func (r *sglRig) read(off int64, n int) []byte {
	r.t.Helper()
	ns, err := r.honest.ctrl.Namespace(context.Background(), 1)
	if err != nil {
		r.t.Fatal(err)
	}
	b := make([]byte, n)
	if _, err := ns.ReadAt(context.Background(), b, off); err != nil {
		r.t.Fatal(err)
	}
	return b
}

// TestSGLOverlap has concurrent commands that share memory of the host, which is the host's own business: both succeed,
// and touch no more than what they name.
func TestSGLOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, shared = 4096, 1024
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer})
		defer r.close()
		admin, io := r.controller(0)
		defer admin.close()
		defer io.close()
		both := func(op nvme.Opcode) {
			for i := range 2 {
				io.sendKeyed(blocks(op, i*size, size), i*(size-shared), size)
			}
			for range 2 {
				if cqe := io.answer(); !cqe.Status().OK() {
					t.Errorf("%s: status %v", op.IOName(), cqe.Status())
				}
			}
		}
		for i := range sglTransfer {
			io.data(i, 1)[0] = byte(i >> 8)
		}
		both(nvme.OpWrite)
		want := append(bytes.Clone(io.data(0, size)), io.data(size-shared, size)...)
		if !bytes.Equal(r.read(0, 2*size), want) {
			t.Error("the volume has something else than what the host's memory had")
		}
		io.fill(0xee)
		both(nvme.OpRead)
		middle, first, second := io.data(size-shared, shared), want[size-shared:size], want[size:size+shared]
		if !bytes.Equal(io.data(0, size-shared), want[:size-shared]) || !bytes.Equal(io.data(size, size-shared), want[size+shared:]) ||
			!bytes.Equal(middle, first) && !bytes.Equal(middle, second) {
			t.Error("the host's memory has something else than what the volume has")
		}
		if !all(io.data(2*size-shared, sglTransfer-2*size+shared), 0xee) {
			t.Error("more was written than what the commands name")
		}
	})
}

// TestShortCapsule: a capsule that is shorter than a command ends the connection, and isn't mistaken for the command
// that was in the same receive buffer before.
func TestShortCapsule(t *testing.T) {
	for _, n := range []int{1, nvme.CommandSize - 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newSGLRig(t, rdma.TargetConfig{})
			defer r.close()
			admin, io := r.controller(0)
			defer admin.close()
			defer io.close()
			for range 40 { // the queue has 32: there is a command in every receive buffer
				cmd := blocks(nvme.OpRead, 0, sglBlock)
				io.key(&cmd, 0, sglBlock)
				io.do("a good one", cmd, nil, nvme.StatusSuccess)
			}
			io.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: io.sge(sglCapsules, n)})
			time.Sleep(time.Second)
			select {
			case cqe := <-io.answers:
				t.Errorf("%d bytes are answered: %v", n, cqe.Status())
			default:
			}
			if !io.ended() {
				t.Errorf("the connection goes on after a capsule of %d bytes", n)
			}
		})
	}
}
