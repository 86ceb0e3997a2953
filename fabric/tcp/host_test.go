package tcp

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/internal/fabrictest"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// dialled is a host's queue connected to a controller that the test simulates.
type dialled struct {
	*client
	ctrl *raw
	tr   *Transport
}

// listenRaw accepts one connection.
func listenRaw(t testing.TB, n socket.Network) (netip.AddrPort, func() *raw) {
	t.Helper()
	l, err := n.Listen(anyPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr(), func() *raw {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return nil
		}
		return newRaw(t, peerOf(c))
	}
}

// dialRaw makes an I/O queue of 64 entries to a controller that answers with resp; its digests
// are set to those that the host asks for.
func dialRaw(t testing.TB, cfg HostConfig, resp pdu.ICResp) *dialled {
	t.Helper()
	return dialRawQueue(t, cfg, resp, 1)
}

func dialRawQueue(t testing.TB, cfg HostConfig, resp pdu.ICResp, qid uint16) *dialled {
	t.Helper()
	tr, err := NewTransport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	addr, accept := listenRaw(t, cmp.Or(cfg.Network, socket.System))
	accepted := make(chan *raw, 1)
	go func() {
		p := accept()
		if p != nil {
			b := make([]byte, pdu.ICSize)
			_, _ = p.Read(b)
			resp.Digests = pdu.Digests(b[offDigest])
			p.digests = resp.Digests
			_, _ = p.Write(resp.Append(nil))
		}
		accepted <- p
	}()
	d := &dialled{tr: tr, client: dial(t, tr, addr, clientOptions{size: 64, inCapsule: 4096}, qid, 1)}
	d.ctrl = <-accepted
	return d
}

// start submits a command and returns its CID as the controller sees it.
func (d *dialled) start(cmd nvme.Command, data []byte) (r *host.Request, done chan struct{}, cid uint16) {
	d.t.Helper()
	done = make(chan struct{})
	r = &host.Request{Cmd: cmd, Data: data, Done: func(*host.Request) { close(done) }}
	d.submit(r)
	return r, done, nvme.CommandAt(d.ctrl.expect(pdu.TypeCapsuleCmd)[pdu.HeaderSize:]).CID()
}

func (d *dialled) wait(done chan struct{}) {
	d.t.Helper()
	if _, ok := soon.Receive(done); !ok {
		d.t.Fatal("the request doesn't end")
	}
}

var goodResp = pdu.ICResp{MAXH2CDATA: 8192}

// TestHostTerminates answers a read and a write of 16 KiB in every invalid way.
func TestHostTerminates(t *testing.T) {
	const size = 16 << 10
	kib := make([]byte, 1024)
	for _, c := range []struct {
		name  string
		write bool
		pdu   func(p *raw, cid uint16) []byte
		fes   pdu.FES
		fei   uint32
	}{
		{"CID of a response", false, func(p *raw, cid uint16) []byte { return p.resp(cid+1, 0) }, pdu.FESInvalidHeader, pdu.OffCID},
		{"CCCID of data", false, func(p *raw, cid uint16) []byte {
			return p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData}, CCCID: cid ^ 0x8000}, kib)
		}, pdu.FESInvalidHeader, pdu.OffCCCID},
		{"data for a write", true, func(p *raw, cid uint16) []byte {
			return p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData}, CCCID: cid}, kib)
		}, pdu.FESSequence, 0},
		{"gap", false, func(p *raw, cid uint16) []byte {
			return p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData}, CCCID: cid, DATAO: 512}, kib)
		}, pdu.FESSequence, 0},
		{"too much", false, func(p *raw, cid uint16) []byte {
			return p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData}, CCCID: cid}, make([]byte, size+4))
		}, pdu.FESOutOfRange, 0},
		{"DATAL", false, func(p *raw, cid uint16) []byte {
			return p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData}, CCCID: cid, DATAL: 1000}, kib)
		}, pdu.FESInvalidHeader, pdu.OffDATAL},
		{"SUCCESS without LAST", false, func(p *raw, cid uint16) []byte {
			return p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData, Flags: pdu.FlagSuccess}, CCCID: cid}, kib)
		}, pdu.FESInvalidHeader, pdu.OffFlags},
		{"R2T for a read", false, func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TL: 512}) }, pdu.FESInvalidHeader, pdu.OffCCCID},
		{"R2T of nothing", true, func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid}) }, pdu.FESInvalidHeader, pdu.OffDATAL},
		{"R2T too long", true, func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TL: size + 1}) }, pdu.FESInvalidHeader, pdu.OffDATAL},
		{"R2T with a gap", true, func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TO: 512, R2TL: 512}) }, pdu.FESSequence, 0},
		{"R2T wraps", true, func(p *raw, cid uint16) []byte { return p.r2t(pdu.R2T{CCCID: cid, R2TL: 0xffffffff}) }, pdu.FESInvalidHeader, pdu.OffDATAL},
		{"second ICResp", false, func(*raw, uint16) []byte { return goodResp.Append(nil) }, pdu.FESSequence, 0},
		{"a command", false, func(p *raw, _ uint16) []byte { return p.capsule(identify(1), nil) }, pdu.FESSequence, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := dialRaw(t, HostConfig{}, goodResp)
			op := nvme.OpRead
			if c.write {
				op = nvme.OpWrite
			}
			r, done, cid := d.start(ioCommand(op, 0, size), make([]byte, size))
			sent := c.pdu(d.ctrl, cid)
			d.ctrl.send(sent)
			d.ctrl.terminated(c.fes, c.fei, sent)
			_ = d.ctrl.Close()
			d.wait(done)
			if !errors.Is(r.Err, ErrProtocol) {
				t.Errorf("the command ended with %v, want %v", r.Err, ErrProtocol)
			}
			<-d.gone
		})
	}
}

// TestHostR2TAfterResponse: a controller that answers a write while its data is being sent can't
// ask for more of the data. The command ends as soon as the data being sent is out, and its memory
// belongs to its owner then.
func TestHostR2TAfterResponse(t *testing.T) {
	virtually(t, func(t *testing.T, n socket.Network) {
		const size, more = 4 << 20, 4096 // more than sockets hold
		resp := goodResp
		resp.MAXH2CDATA = size
		d := dialRaw(t, HostConfig{BusyPoll: NoBusyPoll, Network: n}, resp)
		r, done, cid := d.start(ioCommand(nvme.OpWrite, 0, size), make([]byte, size))
		d.ctrl.send(d.ctrl.r2t(pdu.R2T{CCCID: cid, R2TL: size - more}))
		if _, err := io.ReadFull(d.ctrl, make([]byte, pdu.DataSize)); err != nil { // it is being sent
			t.Fatal(err)
		}
		d.ctrl.send(append(d.ctrl.resp(cid, 0), d.ctrl.r2t(pdu.R2T{CCCID: cid, R2TO: size - more, R2TL: more})...))
		waitFor(t, "protocol error", func() bool { return d.tr.Counters().ProtocolErrors.Load() == 1 }) // before all is sent
		go func() { _, _ = io.Copy(io.Discard, d.ctrl) }()
		d.wait(done)
		if !errors.Is(r.Err, ErrProtocol) {
			t.Errorf("the command ended with %v, want %v", r.Err, ErrProtocol)
		}
		<-d.gone
	})
}

// TestHostDataErrors damages and shortens read data: that command fails, the next works. A wrong data digest is a
// transient transport error (NVMe/TCP, section 3.5, "Digest Error handling").
func TestHostDataErrors(t *testing.T) {
	const size = 4096
	want := randomBytes(1, size)
	for _, success := range []bool{false, true} {
		d := dialRaw(t, HostConfig{HeaderDigest: true, DataDigest: true}, goodResp)
		answer := func(change func([]byte), n int) nvme.Status {
			t.Helper()
			read := ioCommand(nvme.OpRead, 0, size)
			read.SetNSID(uint32(nvme.FCAuthReceive)) // where a Fabrics command has its type
			r, done, cid := d.start(read, make([]byte, size))
			flags := uint8(pdu.FlagLast)
			if success {
				flags |= pdu.FlagSuccess
			}
			sent := d.ctrl.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData, Flags: flags}, CCCID: cid}, want[:n])
			change(sent)
			d.ctrl.send(sent)
			if !success {
				d.ctrl.send(d.ctrl.resp(cid, 0))
			}
			d.wait(done)
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if r.CQE.CID() != cid {
				t.Errorf("CID %#x in the completion of %#x", r.CQE.CID(), cid)
			}
			if r.CQE.Status().OK() && !bytes.Equal(r.Data, want) {
				t.Error("the data is wrong")
			}
			return r.CQE.Status()
		}
		if st := answer(func(b []byte) { b[1000] ^= 1 }, size); st != nvme.StatusTransientTransport {
			t.Errorf("damaged data: status %#x", st)
		}
		if st := answer(func([]byte) {}, size-512); st != nvme.StatusDataTransferError {
			t.Errorf("short data: status %#x", st)
		}
		if st := answer(func([]byte) {}, size); !st.OK() {
			t.Errorf("good data: status %#x", st)
		}
		c := d.tr.Counters()
		if c.DataDigestErrors.Load() != 1 || c.ShortData.Load() != 1 {
			t.Errorf("%d data digest errors, %d short", c.DataDigestErrors.Load(), c.ShortData.Load())
		}
	}
}

// TestHostDataNotAskedFor: a controller that hasn't asked for all the data of a write can't have stored it, even if it
// says so. The status of one that failed is the controller's.
func TestHostDataNotAskedFor(t *testing.T) {
	const size = 64 << 10
	d := dialRaw(t, HostConfig{}, goodResp)
	for _, tc := range []struct{ answer, want nvme.Status }{
		{nvme.StatusSuccess, nvme.StatusDataTransferError},
		{nvme.StatusInternalError, nvme.StatusInternalError},
	} {
		for _, asked := range []uint32{0, 4096} {
			r, done, cid := d.start(ioCommand(nvme.OpWrite, 0, size), make([]byte, size))
			if asked > 0 {
				d.ctrl.send(d.ctrl.r2t(pdu.R2T{CCCID: cid, R2TL: asked}))
				d.ctrl.expect(pdu.TypeH2CData)
			}
			d.ctrl.send(d.ctrl.resp(cid, tc.answer))
			d.wait(done)
			if st := r.CQE.Status(); r.Err != nil || st != tc.want {
				t.Errorf("%v after %d of %d bytes: %v, status %v", tc.answer, asked, size, r.Err, st)
			}
		}
	}
	if n := d.tr.Counters().ShortData.Load(); n != 2 {
		t.Errorf("%d short writes are counted", n)
	}
}

// TestHostReadFails: the status of a read that failed is the controller's, whatever data came before.
func TestHostReadFails(t *testing.T) {
	const size = 4096
	d := dialRaw(t, HostConfig{}, goodResp)
	for _, n := range []int{0, 512, size} {
		r, done, cid := d.start(ioCommand(nvme.OpRead, 0, size), make([]byte, size))
		if n > 0 {
			d.ctrl.send(d.ctrl.c2h(cid, 0, 0, n))
		}
		d.ctrl.send(d.ctrl.resp(cid, nvme.StatusUnrecoveredRead))
		d.wait(done)
		if st := r.CQE.Status(); r.Err != nil || st != nvme.StatusUnrecoveredRead {
			t.Errorf("after %d bytes: %v, status %v", n, r.Err, st)
		}
	}
	if n := d.tr.Counters().ShortData.Load(); n != 0 {
		t.Errorf("%d short reads are counted", n)
	}
}

// TestHostShortMessage: an Authentication Receive says how much room there is (AL), and a controller
// may send the message alone. The rest of the buffer then isn't left as it was before.
func TestHostShortMessage(t *testing.T) {
	const n = 64
	for _, success := range []bool{false, true} {
		d := dialRaw(t, HostConfig{}, goodResp)
		var cmd nvme.Command
		cmd.SetAuthReceive(nvme.MaxAuthMessage)
		r, done, cid := d.start(cmd, bytes.Repeat([]byte{0xa5}, nvme.MaxAuthMessage))
		message := bytes.Repeat([]byte{1}, n)
		flags := uint8(pdu.FlagLast)
		if success {
			flags |= pdu.FlagSuccess
		}
		d.ctrl.send(d.ctrl.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData, Flags: flags}, CCCID: cid}, message))
		if !success {
			d.ctrl.send(d.ctrl.resp(cid, 0))
		}
		d.wait(done)
		if st := r.CQE.Status(); r.Err != nil || !st.OK() {
			t.Errorf("%v, status %#x", r.Err, st)
		}
		if want := append(message, make([]byte, nvme.MaxAuthMessage-n)...); !bytes.Equal(r.Data, want) {
			t.Errorf("% x …", r.Data[:2*n])
		}
		if got := d.tr.Counters().ShortData.Load(); got != 0 {
			t.Errorf("%d short", got)
		}
	}
}

// TestHostHeaderDigest damages a header.
func TestHostHeaderDigest(t *testing.T) {
	d := dialRaw(t, HostConfig{HeaderDigest: true}, goodResp)
	_, done, cid := d.start(ioCommand(nvme.OpFlush, 0, 512), nil)
	sent := put32(d.ctrl.resp(cid, 0), pdu.CapsuleRespSize, 0x12345678)
	d.ctrl.send(sent)
	d.ctrl.terminated(pdu.FESHeaderDigest, 0x12345678, sent)
	_ = d.ctrl.Close()
	d.wait(done)
}

// TestHostTransfer has a controller that splits reads into several PDUs and writes into several
// R2Ts, and wants its data aligned (CPDA).
func TestHostTransfer(t *testing.T) {
	const size = 40 << 10
	want := randomBytes(2, size)
	for _, cpda := range []uint8{0, 3, 17, 31} {
		for _, cfg := range []HostConfig{{}, {HeaderDigest: true, DataDigest: true}} {
			d := dialRaw(t, cfg, pdu.ICResp{CPDA: cpda, MAXH2CDATA: 8192})
			ru := pdu.Rules{Self: pdu.Controller, Ready: true, Format: pdu.Format{Digests: cfg.digests(), PDA: cpda}}

			r, done, cid := d.start(ioCommand(nvme.OpRead, 0, size), make([]byte, size))
			for off := 0; off < size; off += 5000 {
				n := min(5000, size-off)
				d.ctrl.send(d.ctrl.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData}, CCCID: cid, DATAO: uint32(off)}, want[off:off+n]))
			}
			d.ctrl.send(d.ctrl.resp(cid, 0))
			d.wait(done)
			if !r.CQE.Status().OK() || !bytes.Equal(r.Data, want) {
				t.Errorf("CPDA %d: read: status %v", cpda, r.CQE.Status())
			}

			r, done, cid = d.start(ioCommand(nvme.OpWrite, 0, size), want)
			var got []byte
			for off := 0; off < size; off += 30000 {
				n := min(30000, size-off)
				d.ctrl.send(d.ctrl.r2t(pdu.R2T{CCCID: cid, TTAG: 0xffff, R2TO: uint32(off), R2TL: uint32(n)}))
				for end := off + n; len(got) < end; {
					got = append(got, d.ctrl.hostData(ru, cid, len(got), end)...)
				}
			}
			d.ctrl.send(d.ctrl.resp(cid, nvme.StatusLBAOutOfRange))
			d.wait(done)
			if r.CQE.Status() != nvme.StatusLBAOutOfRange || !bytes.Equal(got, want) {
				t.Errorf("CPDA %d: write: status %v", cpda, r.CQE.Status())
			}
		}
	}
}

// hostData reads an H2CData PDU and checks it.
func (p *raw) hostData(ru pdu.Rules, cid uint16, off, end int) []byte {
	p.t.Helper()
	b := p.expect(pdu.TypeH2CData)
	h, err := pdu.ParseData(b)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := ru.Check(h.Header); err != nil {
		p.t.Fatal(err)
	}
	last := off+int(h.DATAL) == end
	if h.CCCID != cid || h.TTAG != 0xffff || int(h.DATAO) != off || h.DATAL > 8192 || (h.Flags&pdu.FlagLast != 0) != last {
		p.t.Fatalf("at %d of %d: %+v", off, end, h)
	}
	data := b[h.PDO:][:h.DATAL]
	if ru.Format.DataDigest() && !bytes.Equal(pdu.AppendDigest(nil, pdu.Digest(data)), b[len(b)-pdu.DigestSize:]) {
		p.t.Error("wrong data digest")
	}
	return data
}

// TestHostInCapsule checks which data goes into the capsule, and its alignment.
func TestHostInCapsule(t *testing.T) {
	d := dialRaw(t, HostConfig{HeaderDigest: true, DataDigest: true}, pdu.ICResp{CPDA: 17, MAXH2CDATA: 8192})
	for _, n := range []int{512, 4096, 4608} {
		data := randomBytes(uint64(n), n)
		r := &host.Request{Cmd: ioCommand(nvme.OpWrite, 0, n), Data: data, Done: func(*host.Request) {}}
		d.submit(r)
		cmd := nvme.CommandAt(d.ctrl.expectCapsule(t, data, n <= 4096)[pdu.HeaderSize:])
		want := nvme.SGLTransport
		if n <= 4096 {
			want = nvme.SGLInCapsule
		}
		if s := cmd.SGL1(); s.Type() != want || int(s.Length()) != n || s.Address() != 0 || cmd.PSDT() != 1 {
			t.Errorf("%d bytes: SGL %x, PSDT %d", n, *s, cmd.PSDT())
		}
	}
}

// TestHostInlineLimits: Fabrics commands, and those of the admin queue, have up to 8 KiB of data in their capsules,
// whatever IOCCSZ says (section 3.4.1). A command without data has a descriptor of nothing that follows.
func TestHostInlineLimits(t *testing.T) {
	send := func(n int) (cmd nvme.Command) {
		cmd.SetAuthSend(uint32(n))
		return cmd
	}
	admin := func(int) nvme.Command { return nvme.Command{0: 0x81} } // Security Send
	write := func(n int) nvme.Command { return ioCommand(nvme.OpWrite, 0, n) }
	none := func(int) (cmd nvme.Command) {
		cmd.SetSetFeatures(nvme.FeatNumberOfQueues, false, 0, 0)
		return cmd
	}
	for _, c := range []struct {
		name    string
		qid     uint16
		command func(n int) nvme.Command
		n       int
		inline  bool
	}{
		{"Fabrics", 1, send, fabricsInCapsule, true},
		{"Fabrics, longer", 1, send, fabricsInCapsule + 4, false},
		{"admin", 0, admin, fabricsInCapsule, true},
		{"admin, longer", 0, admin, fabricsInCapsule + 4, false},
		{"I/O", 1, write, 4096, true},
		{"I/O, longer", 1, write, 8192, false},
		{"no data", 0, none, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := dialRawQueue(t, HostConfig{}, goodResp, c.qid)
			d.submit(&host.Request{Cmd: c.command(c.n), Data: make([]byte, c.n), Done: func(*host.Request) {}})
			b := d.ctrl.expect(pdu.TypeCapsuleCmd)
			want, inline := nvme.SGLTransport, 0
			if c.inline {
				want, inline = nvme.SGLInCapsule, c.n
			}
			cmd := nvme.CommandAt(b[pdu.HeaderSize:])
			if s := cmd.SGL1(); s.Type() != want || int(s.Length()) != c.n || pdu.HeaderAt(b).DataLen() != inline || cmd.PSDT() != 1 {
				t.Errorf("SGL %x with %d bytes in the capsule, PSDT %d", *s, pdu.HeaderAt(b).DataLen(), cmd.PSDT())
			}
		})
	}
}

func (p *raw) expectCapsule(t *testing.T, data []byte, inline bool) []byte {
	t.Helper()
	b := p.expect(pdu.TypeCapsuleCmd)
	h := pdu.HeaderAt(b)
	ru := pdu.Rules{Self: pdu.Controller, Ready: true, Format: pdu.Format{Digests: pdu.DigestHeader | pdu.DigestData, PDA: 17}}
	if err := ru.Check(h); err != nil {
		t.Fatal(err)
	}
	if (h.DataLen() > 0) != inline || inline && !bytes.Equal(b[h.PDO:][:h.DataLen()], data) {
		t.Errorf("%d bytes: %+v", len(data), h)
	}
	return b
}

// TestHostEarlyResponse answers a write whose data is still being sent: the request ends only
// when its memory isn't needed any more.
func TestHostEarlyResponse(t *testing.T) {
	const size = 64 << 20 // more than the sockets hold
	d := dialRaw(t, HostConfig{}, goodResp)
	r, done, cid := d.start(ioCommand(nvme.OpWrite, 0, 512), make([]byte, size))
	d.ctrl.send(d.ctrl.r2t(pdu.R2T{CCCID: cid, R2TL: size}))
	out := &d.tr.Counters().Out
	waitFor(t, "full socket", func() bool { return out.Blocked.Load() > 0 })
	d.ctrl.send(d.ctrl.resp(cid, nvme.StatusInternalError))

	// Another command is submitted meanwhile, and the host sees the response before all data is sent.
	r2 := &host.Request{Cmd: ioCommand(nvme.OpFlush, 0, 512), Done: func(*host.Request) {}}
	d.submit(r2)
	in := &d.tr.Counters().In
	waitFor(t, "early response", func() bool { return in.PDUs[pdu.TypeCapsuleResp].Load() == 1 })
	select {
	case <-done:
		t.Fatal("the request ended while its data was being sent")
	default:
	}
	for got := 0; got < size; {
		h := pdu.HeaderAt(d.ctrl.expect(pdu.TypeH2CData))
		got += h.DataLen()
	}
	d.wait(done)
	if r.CQE.Status() != nvme.StatusInternalError {
		t.Errorf("status %v", r.CQE.Status())
	}
	d.ctrl.expect(pdu.TypeCapsuleCmd) // the other command wasn't lost

	again, done, cid := d.start(ioCommand(nvme.OpWrite, 0, 8192), make([]byte, 8192)) // in the same slot
	d.ctrl.send(d.ctrl.r2t(pdu.R2T{CCCID: cid, R2TL: 8192}))
	d.ctrl.expect(pdu.TypeH2CData)
	d.ctrl.send(d.ctrl.resp(cid, nvme.StatusSuccess))
	d.wait(done)
	if again.Err != nil || !again.CQE.Status().OK() {
		t.Errorf("the next write in the slot: %v, status %v", again.Err, again.CQE.Status())
	}
}

// TestHostSecondR2T asks for more of a write's data while what was asked for is still being sent: MAXR2T is 0, which
// allows one R2T at a time.
func TestHostSecondR2T(t *testing.T) {
	const size = 64 << 20
	d := dialRaw(t, HostConfig{}, goodResp)
	r, done, cid := d.start(ioCommand(nvme.OpWrite, 0, 512), make([]byte, 2*size))
	d.ctrl.send(d.ctrl.r2t(pdu.R2T{CCCID: cid, R2TL: size}))
	waitFor(t, "full socket", func() bool { return d.tr.Counters().Out.Blocked.Load() > 0 })
	d.ctrl.send(d.ctrl.r2t(pdu.R2T{CCCID: cid, R2TO: size, R2TL: size}))
	waitFor(t, "protocol error", func() bool { return d.tr.Counters().ProtocolErrors.Load() == 1 })
	_ = d.ctrl.Close()
	d.wait(done)
	var fault *pdu.FieldError
	if !errors.Is(r.Err, ErrProtocol) || !errors.As(r.Err, &fault) || fault.FES != pdu.FESLimitExceeded {
		t.Errorf("the command ended with %v, want FES %v", r.Err, pdu.FESLimitExceeded)
	}
}

// TestHostSecondResponse answers a write whose data is still being sent twice.
func TestHostSecondResponse(t *testing.T) {
	const size = 64 << 20
	d := dialRaw(t, HostConfig{}, goodResp)
	r, done, cid := d.start(ioCommand(nvme.OpWrite, 0, 512), make([]byte, size))
	d.ctrl.send(d.ctrl.r2t(pdu.R2T{CCCID: cid, R2TL: size}))
	waitFor(t, "full socket", func() bool { return d.tr.Counters().Out.Blocked.Load() > 0 })
	d.ctrl.send(d.ctrl.resp(cid, nvme.StatusInternalError))
	d.ctrl.send(d.ctrl.resp(cid, nvme.StatusInternalError))
	waitFor(t, "protocol error", func() bool { return d.tr.Counters().ProtocolErrors.Load() == 1 })
	_ = d.ctrl.Close()
	d.wait(done)
	if !errors.Is(r.Err, ErrProtocol) {
		t.Errorf("the command ended with %v, want %v", r.Err, ErrProtocol)
	}
}

// TestHostTerminated sends a C2HTermReq, and cuts the connection.
func TestHostTerminated(t *testing.T) {
	d := dialRaw(t, HostConfig{}, goodResp)
	r, done, _ := d.start(ioCommand(nvme.OpRead, 0, 4096), make([]byte, 4096))
	d.ctrl.send(pdu.TermReq{Type: pdu.TypeC2HTermReq, FES: pdu.FESInvalidHeader, FEI: 2, Offence: make([]byte, 8)}.Append(nil))
	d.wait(done)
	var te *TerminatedError
	if !errors.As(r.Err, &te) || te.FES != pdu.FESInvalidHeader || te.FEI != 2 {
		t.Errorf("the command ended with %v, want FES %v and FEI 2", r.Err, pdu.FESInvalidHeader)
	}

	d = dialRaw(t, HostConfig{}, goodResp)
	r, done, cid := d.start(ioCommand(nvme.OpRead, 0, 4096), make([]byte, 4096))
	sent := d.ctrl.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData}, CCCID: cid}, make([]byte, 4096))
	d.ctrl.send(sent[:2000])
	_ = d.ctrl.Close()
	d.wait(done)
	if !errors.Is(r.Err, ErrPeerClosed) {
		t.Errorf("the command ended with %v, want %v", r.Err, ErrPeerClosed)
	}
	d.submit(r) // a dead connection takes it and does nothing
}

// TestHostMalformedTermReq: a C2HTermReq whose PLEN is below 24 or above 152 is ignored, which means not answered either,
// and the connection ends at once (NVMe/TCP, section 3.5).
func TestHostMalformedTermReq(t *testing.T) {
	for _, plen := range []uint32{pdu.TermReqSize - 1, pdu.TermReqSize + pdu.MaxTermData + 1} {
		d := dialRaw(t, HostConfig{}, goodResp)
		r, done, _ := d.start(ioCommand(nvme.OpRead, 0, 4096), make([]byte, 4096))
		d.ctrl.send(put32(pdu.TermReq{Type: pdu.TypeC2HTermReq, FES: pdu.FESSequence}.Append(nil), pdu.OffPLEN, plen))
		d.ctrl.closed()
		d.wait(done)
		if !errors.Is(r.Err, ErrProtocol) {
			t.Errorf("PLEN %d: %v", plen, r.Err)
		}
	}
}

// TestHostClose closes with commands outstanding.
func TestHostClose(t *testing.T) {
	d := dialRaw(t, HostConfig{}, goodResp)
	r, done, _ := d.start(ioCommand(nvme.OpRead, 0, 4096), make([]byte, 4096))
	if d.q.Size() != 64 || !d.q.Local().IsValid() {
		t.Errorf("size %d, local %v", d.q.Size(), d.q.Local())
	}
	n := d.tr.Counters()
	if n.Accepted.Load() != 1 || n.Connections.Load() != 1 {
		t.Errorf("%d connections were made, %d are open", n.Accepted.Load(), n.Connections.Load())
	}
	if err := d.q.Close(); err != nil {
		t.Error(err)
	}
	if n.Connections.Load() != 0 {
		t.Error("the connection counts as open when it is closed")
	}
	d.wait(done)
	<-d.gone
	if d.err != nil || !errors.Is(r.Err, ErrClosed) {
		t.Errorf("%v, %v", d.err, r.Err)
	}
	d.ctrl.closed()
}

// TestHostMemory checks Alloc and Free.
func TestHostMemory(t *testing.T) {
	tr, err := NewTransport(HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := tr.Alloc(10000)
	if err != nil || len(b) != 10000 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	b[9999] = 1
	tr.Free(b)
	for n, want := range map[int]error{0: host.ErrRange, -1: host.ErrRange, defaultHostMemory + 1: host.ErrNoMemory} {
		if _, err := tr.Alloc(n); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v, want %v", n, err, want)
		}
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

// TestHostMemoryAgain: memory that was freed can be had again.
func TestHostMemoryAgain(t *testing.T) {
	tr, err := NewTransport(HostConfig{Memory: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	fabrictest.MemoryAgain(t, tr)
}

// TestHostTakesBack: what the system still holds of a closed connection isn't sent. Its commands have failed, and may
// have been sent again on another connection meanwhile.
func TestHostTakesBack(t *testing.T) {
	const size = 32 << 20 // more than sockets hold
	resp := goodResp
	resp.MAXH2CDATA = size
	d := dialRaw(t, HostConfig{}, resp)
	r, done, cid := d.start(ioCommand(nvme.OpWrite, 0, size), make([]byte, size))
	d.ctrl.send(d.ctrl.r2t(pdu.R2T{CCCID: cid, R2TL: size}))
	if _, err := io.ReadFull(d.ctrl, make([]byte, pdu.DataSize)); err != nil { // it is being sent
		t.Fatal(err)
	}
	_ = d.q.Close()
	d.wait(done)
	if r.Err == nil {
		t.Error("the write succeeded")
	}
	if n, err := io.Copy(io.Discard, d.ctrl); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%d bytes after the end, then %v, want a reset", n, err)
	}
}

// TestHostDataBeyond sends data for a read that begins where it should and ends beyond the memory for it.
func TestHostDataBeyond(t *testing.T) {
	const size, first = 16 << 10, 1024
	d := dialRaw(t, HostConfig{}, goodResp)
	r, done, cid := d.start(ioCommand(nvme.OpRead, 0, size), make([]byte, size))
	part := func(off uint32, n int) []byte {
		return d.ctrl.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData}, CCCID: cid, DATAO: off}, make([]byte, n))
	}
	beyond := part(first, size-first+4)
	d.ctrl.send(append(part(0, first), beyond...))
	d.ctrl.terminated(pdu.FESOutOfRange, 0, beyond)
	_ = d.ctrl.Close()
	d.wait(done)
	if !errors.Is(r.Err, ErrProtocol) {
		t.Errorf("the command ended with %v, want %v", r.Err, ErrProtocol)
	}
	<-d.gone
}
