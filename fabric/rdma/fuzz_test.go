package rdma_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// FuzzTarget sends a target whatever a host may: capsules with any command, of any length, whose SGLs name its memory,
// other memory, or nothing. Nothing panics, nothing outside the memory that the host registered is written or read, and
// when the host has gone the target has everything back.
//
// The input is a list of capsules: a control byte, a length byte in units of 8, and the content.
// The control byte says whether an existing key and address are filled in, which length the SGL has, and whether to
// wait for the answer.
func FuzzTarget(tf *testing.F) {
	f := fuzzing.New(tf)
	capsule := func(control byte, cmd nvme.Command) []byte {
		cmd.SetFlags(nvme.FlagsSGL)
		return append([]byte{control, byte(len(cmd) / 8)}, cmd[:]...)
	}
	var connect, property, identify, keepAlive nvme.Command
	connect.SetConnect(0, 31, 0, 0)
	property.SetPropertySet(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable))
	identify.SetIdentify(nvme.CNSController, 0, 0, 0)
	keepAlive.SetKeepAlive()
	for _, how := range []uint8{0, fuzzInstant} {
		f.Add(how, append(append(capsule(0x13, connect), capsule(0x10, property)...), capsule(0x33, identify)...))
		f.Add(how, append(capsule(0x00, identify), capsule(0x80, keepAlive)...))
	}
	f.Worlds(func(t *testing.T, how uint8, inputs iter.Seq[[]byte]) {
		synctest.Test(t, func(t *testing.T) {
			w := newTargetWorld(t, how)
			for data := range inputs {
				w.feed(data)
			}
			w.close()
		})
	})
}

// fuzzInstant in the first argument makes packets take no time.
const fuzzInstant = 1

// fuzzSettle is how long the two sides have to finish what an input started: several round trips.
const fuzzSettle = 200 * time.Microsecond

// targetWorld is a target, and a host that reconnects when its connection has ended.
type targetWorld struct {
	t      *testing.T
	tgt    *target.Target
	tn, hn *simNIC
	l      *rdma.Listener
	p      *rawPeer
	open   bool
}

func newTargetWorld(t *testing.T, how uint8) *targetWorld {
	n := simNetwork(how&fuzzInstant != 0)
	tgt, err := target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: memory(t, 1<<16)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	w := &targetWorld{t: t, tgt: tgt, tn: newSimNIC(t, n, simTarget), hn: newSimNIC(t, n, simHost), p: &rawPeer{t: t}}
	w.l = listen(t, w.tn, simNVMe, tgt, rdma.TargetConfig{Memory: 8 << 20})
	return w
}

// feed sends capsules. A good host can always connect.
func (w *targetWorld) feed(data []byte) {
	p := w.p
	if !w.open {
		p.dialTarget(w.hn, 0, 0)
		w.open = true
	}
	const at = rawRecvs * rawRecvSize
	d := nvme.ConnectData{CNTLID: nvme.CNTLIDDynamic, SubNQN: testNQN, HostNQN: "nqn.2014-08.org.nvmexpress:uuid:1", HostID: nvme.HostID{1}}
	if _, err := d.AppendTo(p.area(at, rawData)[:0]); err != nil {
		w.t.Fatal(err)
	}
	for step := 0; len(data) >= 2 && step < 32; step++ {
		control, size := data[0], min(8*int(data[1]), len(data)-2)
		b := p.area(at+rawData/2+step*1024, 1024)
		size = copy(b, data[2:2+min(size, 1024)])
		data = data[2+size:]
		if control&1 != 0 && size >= nvme.CommandSize {
			cmd := nvme.CommandAt(b)
			length := uint32(nvme.ConnectDataSize) << (control >> 1 & 7)
			cmd.SGL1().SetKeyed(nvme.SGLKeyed, p.mr.Addr()+at, length, p.mr.RKey())
		}
		if size > 0 {
			p.post(verbs.SendWR{Opcode: verbs.WRSend, SGList: p.sge(at+rawData/2+step*1024, size)})
		}
		if control&0x10 != 0 {
			synctest.Wait()
		}
	}
	time.Sleep(fuzzSettle)
	synctest.Wait()
	p.check()
	if p.ended() {
		w.hangUp()
	}
}

func (w *targetWorld) hangUp() {
	w.p.close()
	w.open = false
	time.Sleep(time.Second) // until the target has noticed
}

func (w *targetWorld) close() {
	time.Sleep(time.Second)
	if w.open {
		w.p.close()
	}
	w.hn.close(w.t)
	if err := errors.Join(w.l.Close(), w.tgt.Close(context.Background())); err != nil {
		w.t.Error(err)
	}
	w.tn.close(w.t)
}

// fuzzSink counts what a host's queue delivers.
type fuzzSink struct {
	mu     sync.Mutex
	out    map[uint16]bool
	closed int
}

func (s *fuzzSink) Completed(cqe *nvme.Completion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.out[cqe.CID()]
	delete(s.out, cqe.CID())
	return known
}

func (s *fuzzSink) Closed(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
}

func (s *fuzzSink) ended() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// missing returns the requests that aren't outstanding, gives them CIDs, and marks them as outstanding.
func (s *fuzzSink) missing(all []*host.Request) (again []*host.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range all {
		if cid := uint16(i); !s.out[cid] {
			s.out[cid] = true
			r.Cmd.SetCID(cid)
			r.Slot = cid
			again = append(again, r)
		}
	}
	return again
}

// FuzzHost answers a host's commands with whatever a target may: completions of any content and length, data by WRITE
// to the command's key and beyond its range, invalidations of keys that are or aren't its own. Nothing panics, nothing
// is written except in the commands' data, no command completes twice, and the queue closes once.
//
// The input is a list of answers: a control byte, and sixteen bytes of completion.
func FuzzHost(tf *testing.F) {
	f := fuzzing.New(tf)
	answer := func(control byte, cqe nvme.Completion) []byte { return append([]byte{control}, cqe[:]...) }
	var good, bad nvme.Completion
	bad.SetStatus(nvme.StatusInvalidField)
	for _, how := range []uint8{0, fuzzInstant} {
		f.Add(how, append(answer(0x07, good), answer(0x07, good)...))
		f.Add(how, append(answer(0x01, good), answer(0x01, good)...))
		f.Add(how, append(answer(0x09, bad), answer(0x10, bad)...))
		f.Add(how, append(answer(0x23, good), answer(0x45, good)...))
	}
	f.Worlds(func(t *testing.T, how uint8, inputs iter.Seq[[]byte]) {
		synctest.Test(t, func(t *testing.T) {
			w := newHostWorld(t, how, (*roce.Device).VendorOptions)
			for data := range inputs {
				w.feed(data)
			}
			w.close()
		})
	})
}

// hostWorld is a host that has commands outstanding, and connects again when its queue has closed.
type hostWorld struct {
	t        *testing.T
	net      *simnet.Network
	tn, hn   *simNIC
	listener verbs.CMID
	p        *rawPeer
	got      []capsule // waiting for an answer; protected by p.mu
	tr       *rdma.Transport
	q        host.TransportQueue // nil after its end
	sink     *fuzzSink
	requests []*host.Request
	whole    []byte // their data, with memory around
}

// capsule is a message of n bytes in receive buffer index.
type capsule struct{ index, n int }

const (
	fuzzAround = 2048 // bytes at either end of a command's data
	fuzzLength = 4096 // of that
	fuzzStride = fuzzAround + fuzzLength + fuzzAround
)

// newHostWorld makes one whose target has these options.
func newHostWorld(t *testing.T, how uint8, options func(*roce.Device) uint32) *hostWorld {
	n := simNetwork(how&fuzzInstant != 0)
	w := &hostWorld{
		t: t, net: n, tn: openSimNIC(t, n, simTarget, options), hn: newSimNIC(t, n, simHost),
		p: &rawPeer{t: t}, whole: make([]byte, 6*fuzzStride),
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.p.recv = func(index, n int) { w.got = append(w.got, capsule{index, n}) }
	var err error
	w.listener, err = w.tn.CreateID(func(ev verbs.CMEvent) {
		if ev.Type == verbs.CMConnectRequest {
			w.p.id = ev.ID
			w.p.open(w.tn.dev)
			accept := []byte{0, 0, 64, 0, 31: 0}
			_ = ev.ID.Accept(verbs.ConnParam{PrivateData: accept, InitiatorDepth: 16, RetryCount: 7, RNRRetryCount: 7})
		}
	})
	must(err)
	must(w.listener.Listen(simNVMe, 8))
	w.tr, err = rdma.NewTransport(w.hn, rdma.HostConfig{})
	must(err)
	for i := range 6 {
		r := &host.Request{Data: w.whole[i*fuzzStride+fuzzAround:][:fuzzLength:fuzzLength]}
		r.Cmd.SetIO([]nvme.Opcode{nvme.OpRead, nvme.OpWrite}[i%2], 1, 0, 8, 0)
		w.requests = append(w.requests, r)
	}
	return w
}

// feed answers the outstanding commands, and then new ones.
func (w *hostWorld) feed(data []byte) {
	if w.q == nil {
		w.sink = &fuzzSink{out: map[uint16]bool{}}
		var err error
		w.q, err = w.tr.Dial(context.Background(), host.QueueAttr{Remote: simNVMe, QID: 1, CNTLID: 1, Size: 16, InCapsule: 4096, Sink: w.sink})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if again := w.sink.missing(w.requests); len(again) > 0 {
		w.q.Submit(again)
	}
	w.settle()
	p := w.p
	p.mu.Lock()
	got := w.got
	w.got = nil
	p.mu.Unlock()
	for i, m := range got {
		if len(data) < 1+nvme.CompletionSize { // the others wait for the next input
			p.mu.Lock()
			w.got = append(got[i:], w.got...)
			p.mu.Unlock()
			break
		}
		data = p.answer(m.index, m.n, data)
	}
	w.settle()
	p.check()
	w.check()
	if w.sink.ended() > 0 || p.qp.Query().State != verbs.RTS {
		w.hangUp()
	}
}

// settle lets both sides finish what they have to do.
func (w *hostWorld) settle() {
	time.Sleep(fuzzSettle)
	synctest.Wait()
}

// check checks that nothing was written around the commands' data.
func (w *hostWorld) check() {
	var zero [fuzzAround]byte
	for b := w.whole; len(b) > 0; b = b[fuzzStride:] {
		if !bytes.Equal(b[:fuzzAround], zero[:]) || !bytes.Equal(b[fuzzAround+fuzzLength:fuzzStride], zero[:]) {
			w.t.Fatal("written outside of a command's data")
		}
	}
}

// hangUp ends the connection. Its queue closes once, and no command is left.
func (w *hostWorld) hangUp() {
	time.Sleep(time.Second)
	if err := w.q.Close(); err != nil {
		w.t.Error(err)
	}
	if n := w.sink.ended(); n != 1 {
		w.t.Errorf("closed %d times", n)
	}
	w.q = nil
	w.p.close()
	w.got = nil
	w.check()
	time.Sleep(time.Second)
}

func (w *hostWorld) close() {
	if w.q != nil {
		w.hangUp()
	}
	if err := errors.Join(w.tr.Close(), w.listener.Destroy()); err != nil {
		w.t.Error(err)
	}
	w.hn.close(w.t)
	w.tn.close(w.t)
}

// answer answers the capsule in receive buffer index with the next of data, and returns the rest.
func (p *rawPeer) answer(index, size int, data []byte) []byte {
	defer func() { _ = p.postRecv(index) }() // the connection may have ended
	if len(data) < 1+nvme.CompletionSize || size < nvme.CommandSize {
		return data
	}
	control := data[0]
	cmd := nvme.CommandAt(p.area(index*rawRecvSize, nvme.CommandSize))
	cqe := p.area(rawRecvs*rawRecvSize+index*nvme.CompletionSize, nvme.CompletionSize)
	copy(cqe, data[1:])
	if control&1 != 0 {
		binary.LittleEndian.PutUint16(cqe[12:], cmd.CID())
	}
	sgl := cmd.SGL1()
	payload := p.area(rawRecvs*rawRecvSize+rawData/2, 8192)
	for i := range payload {
		payload[i] = 0xa5
	}
	if control&2 != 0 && sgl.Type()>>4 == nvme.SGLKeyed>>4 {
		wr := verbs.SendWR{
			Opcode: verbs.WRRDMAWrite, RemoteAddr: sgl.Address(), RKey: sgl.Key(),
			SGList: p.sge(rawRecvs*rawRecvSize+rawData/2, min(int(sgl.KeyedLength()), 8192)),
		}
		if control&8 != 0 {
			wr.SGList[0].Length = 8192 // more than there is
		}
		if control&16 != 0 {
			wr.RemoteAddr -= 16
		}
		p.post(wr)
	}
	wr := verbs.SendWR{Opcode: verbs.WRSend, SGList: p.sge(rawRecvs*rawRecvSize+index*nvme.CompletionSize, nvme.CompletionSize)}
	if control&4 != 0 {
		wr.Opcode, wr.InvalidateRKey = verbs.WRSendWithInv, sgl.Key()
	}
	if control&32 != 0 {
		wr.SGList[0].Length = uint32(control>>6) * 9 // no completion
	}
	p.post(wr)
	return data[1+nvme.CompletionSize:]
}
