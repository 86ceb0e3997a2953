package tcp

import (
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// fuzzPatience is how long a connection may take to end when nothing keeps it open.
const fuzzPatience = 20 * time.Second

// Flags in the first argument of the fuzz targets here.
const (
	fuzzDigests = 0x40 // the digests that its bits 2 and 3 name are used
	fuzzSockets = 0x30 // each input has a connection of its own, and arrives through its socket
	fuzzSent    = 4    // that is slow, so a world ends after this many inputs
)

// live feeds inputs to a world, by hand or through sockets.
func live(w interface {
	feed(stream []byte)
	send(stream []byte)
}, how uint8, inputs iter.Seq[[]byte],
) {
	sent := 0
	for data := range inputs {
		if how&fuzzSockets != fuzzSockets {
			w.feed(data)
			continue
		}
		w.send(data)
		if sent++; sent == fuzzSent {
			return
		}
	}
}

func fuzzedDigests(how uint8) pdu.Digests {
	if how&fuzzDigests == 0 {
		return 0
	}
	return pdu.Digests(how >> 2 & 3)
}

// pump feeds a stream to a connection's reader as if it came from its socket.
func pump(r *reader, h pduHandler, stream []byte) error {
	for len(stream) > 0 {
		if _, err := h.flush(); err != nil {
			return err
		}
		h.batch()
		n := fill(r, stream, len(stream))
		stream = stream[n:]
		r.took(n)
		if err := r.consume(); err != nil {
			return err
		}
	}
	_, err := h.flush()
	return err
}

// fill copies the beginning of a stream to where r wants it, at most limit bytes to each place.
func fill(r *reader, stream []byte, limit int) (n int) {
	for _, v := range r.iov[:r.prepare()] {
		k := min(int(v.Len), limit, len(stream)-n)
		copy(unsafe.Slice(v.Base, k), stream[n:n+k])
		n += k
		if k < int(v.Len) {
			break
		}
	}
	return n
}

// fuzzSocket is a connected socket that both sides have shut down. Making one for each connection would
// cost more than all the rest, so each gets a duplicate of it; what a connection sends is built and dropped.
type fuzzSocket struct{ file *os.File }

func newFuzzSocket(t *testing.T) *fuzzSocket {
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	peer, err := net.Dial("tcp", l.Addr().String())
	must(err)
	c, err := l.Accept()
	must(err)
	tcp := c.(*net.TCPConn)
	must(errors.Join(tcp.CloseWrite(), peer.Close(), l.Close()))
	_, _ = io.Copy(io.Discard, struct{ io.Reader }{tcp}) // until the peer's FIN has arrived
	file, err := tcp.File()
	must(err)
	must(tcp.Close())
	t.Cleanup(func() { _ = file.Close() })
	return &fuzzSocket{file}
}

func (s *fuzzSocket) conn(t *testing.T) socket.Conn {
	c, err := net.FileConn(s.file)
	if err != nil {
		t.Fatal(err)
	}
	return socketOf(t, c)
}

// FuzzTarget sends a target an arbitrary stream, after as much of a valid beginning as how says. Nothing
// panics, and the connection ends when the stream does, and frees everything that it held.
func FuzzTarget(tf *testing.F) {
	f := fuzzing.New(tf)
	p := &raw{t: f}
	read, write := ioCommand(nvme.OpRead, 0, 4096), ioCommand(nvme.OpWrite, 0, 4096)
	read.SGL1().SetBlock(nvme.SGLTransport, 0, 4096)
	write.SGL1().SetBlock(nvme.SGLInCapsule, 0, 4096)
	h2c := p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeH2CData, Flags: pdu.FlagLast}, CCCID: 1, TTAG: growRequests - 1},
		make([]byte, nvme.ConnectDataSize))
	var asked []byte // a command, and then the data that the target asks for
	for _, input := range [][]byte{p.capsule(pulling(1), nil), h2c} {
		asked = append(binary.LittleEndian.AppendUint16(asked, uint16(len(input))), input...)
	}
	f.Add(uint8(0), pdu.ICReq{}.Append(nil))
	f.Add(uint8(1), append(p.capsule(pulling(1), nil), h2c...))
	f.Add(uint8(fuzzing.Sequence|1), asked)
	f.Add(uint8(2), append(p.capsule(identify(1), nil), p.capsule(identify(2), nil)...))
	f.Add(uint8(2), append(p.capsule(read, nil), p.capsule(write, make([]byte, 4096))...))
	f.Add(uint8(fuzzSockets|2), append(p.capsule(identify(1), nil), p.capsule(read, nil)...))
	f.Add(uint8(1), pdu.TermReq{Type: pdu.TypeH2CTermReq, FES: pdu.FESInvalidHeader, Offence: make([]byte, 24)}.Append(nil))
	f.Add(uint8(fuzzDigests|14), testStream(pdu.DigestHeader | pdu.DigestData)[:1000])
	f.Worlds(func(t *testing.T, how uint8, inputs iter.Seq[[]byte]) {
		w := newTargetWorld(t, how)
		live(w, how, inputs)
		w.end(io.EOF)
	})
}

// targetWorld is a target, with a connection whose reader is fed by hand.
type targetWorld struct {
	*testTarget
	t         *testing.T
	how       uint8
	socket    *fuzzSocket
	handshake []byte
	c         *targetConn // nil after its end
}

func newTargetWorld(t *testing.T, how uint8) *targetWorld {
	vol, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20, BlockSize: block})
	if err != nil {
		t.Fatal(err)
	}
	tt := newTestTargetOn(t, TargetConfig{QueueDepth: 32, MaxTransfer: 64 << 10, MaxConns: 64, MaxPeerConns: 64}, vol)
	w := &targetWorld{testTarget: tt, t: t, how: how, socket: newFuzzSocket(t)}
	w.send(nil) // the listener serves when this is done
	p := &raw{t: t, digests: fuzzedDigests(how)}
	if how&3 > 0 {
		w.handshake = pdu.ICReq{Digests: p.digests}.Append(nil)
	}
	if how&3 > 1 {
		w.handshake = append(w.handshake, p.connectCapsule()...)
		w.handshake = append(w.handshake, p.enableCapsule()...)
	}
	return w
}

// feed feeds a stream to the connection.
func (w *targetWorld) feed(stream []byte) {
	if w.c == nil {
		w.open()
	}
	if err := pump(w.c.r, w.c, stream); err != nil {
		w.end(err)
	}
}

// open makes a connection. A valid host can always connect.
func (w *targetWorld) open() {
	var err error
	if w.c, err = w.newConn(w.socket.conn(w.t)); err != nil {
		w.t.Fatal(err)
	}
	w.c.w.dead.Store(true)
	w.counters.Accepted.Add(1)
	w.counters.Connections.Add(1)
	go w.c.w.serve()
	if err := pump(w.c.r, w.c, w.handshake); err != nil || w.c.connected.Load() != (w.how&3 > 1) {
		w.t.Fatalf("a good host couldn't connect: %v", err)
	}
}

// end ends the connection as its reader would.
func (w *targetWorld) end(err error) {
	if w.c == nil {
		return
	}
	w.c.end(err)
	w.mu.Lock()
	_, left := w.conns[w.c]
	w.mu.Unlock()
	if left || w.c.busy != 0 {
		w.t.Fatalf("after the connection's end: known %v, %d requests", left, w.c.busy)
	}
	w.c = nil
}

// send sends a stream through a connection of its own, which ends with it.
func (w *targetWorld) send(stream []byte) {
	p := rawHost(w.t, w.testTarget)
	_ = p.SetDeadline(time.Now().Add(fuzzPatience))
	if w.how&3 > 0 {
		p.initialize(pdu.ICReq{Digests: fuzzedDigests(w.how)})
	}
	if w.how&3 > 1 {
		p.connect()
		p.enable()
	}
	_, _ = p.Write(stream) // the target may end the connection before it has all of it
	_ = p.CloseWrite()
	if _, err := io.Copy(io.Discard, p); isTimeout(err) {
		w.t.Fatalf("the connection doesn't end: %v", err)
	}
	_ = p.Close()
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// FuzzHost sends a host an arbitrary stream while commands are outstanding. Nothing panics, nothing is
// written except into their data, each command ends once, and so does the connection.
func FuzzHost(tf *testing.F) {
	f := fuzzing.New(tf)
	p := &raw{t: f}
	f.Add(uint8(0), p.resp(63, nvme.StatusSuccess))
	f.Add(uint8(0), append(p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData, Flags: pdu.FlagLast}, CCCID: 63}, make([]byte, 4096)), p.resp(63, 0)...))
	f.Add(uint8(fuzzSockets), append(p.resp(63, 0), p.resp(62, 0)...))
	f.Add(uint8(0), append(p.r2t(pdu.R2T{CCCID: 62, TTAG: 3, R2TL: 16384}), p.resp(62, 0)...))
	f.Add(uint8(0), p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeC2HData, Flags: pdu.FlagLast | pdu.FlagSuccess}, CCCID: 63}, make([]byte, 4096)))
	f.Add(uint8(fuzzDigests|12), pdu.TermReq{Type: pdu.TypeC2HTermReq, FES: pdu.FESInvalidHeader, Offence: make([]byte, 24)}.Append(nil))
	f.Worlds(func(t *testing.T, how uint8, inputs iter.Seq[[]byte]) {
		w := newHostWorld(t, how)
		live(w, how, inputs)
		w.end(io.EOF)
		_ = w.tr.Close()
	})
}

// hostWorld is a host, with a connection whose reader is fed by hand.
type hostWorld struct {
	t      *testing.T
	cfg    HostConfig
	tr     *Transport
	socket *fuzzSocket
	q      *hostQueue // nil after its end
	c      *client
	all    []*fuzzRequest
}

// fuzzRequest is a command with memory around its data.
type fuzzRequest struct {
	host.Request
	memory []byte
	ends   atomic.Int32
}

// fuzzAround is how many bytes of memory are at either end of the data.
const fuzzAround = 64

func newHostWorld(t *testing.T, how uint8) *hostWorld {
	d := fuzzedDigests(how)
	w := &hostWorld{t: t, cfg: HostConfig{HeaderDigest: d&pdu.DigestHeader != 0, DataDigest: d&pdu.DigestData != 0}, socket: newFuzzSocket(t)}
	var err error
	if w.tr, err = NewTransport(w.cfg); err != nil {
		t.Fatal(err)
	}
	for i, n := range []int{4096, 16384} { // one is read, one written by R2T
		r := &fuzzRequest{memory: make([]byte, fuzzAround+n+fuzzAround)}
		r.Cmd = ioCommand([]nvme.Opcode{nvme.OpRead, nvme.OpWrite}[i], 0, n)
		r.Data = r.memory[fuzzAround : fuzzAround+n : fuzzAround+n]
		r.Done = func(*host.Request) { r.ends.Add(1) }
		w.all = append(w.all, r)
	}
	return w
}

// feed feeds a stream to the connection, on which both commands are outstanding.
func (w *hostWorld) feed(stream []byte) {
	if w.q == nil {
		w.open()
	}
	for _, r := range w.all {
		if r.ends.Swap(0) == 1 {
			w.c.submit(&r.Request)
		}
	}
	if err := pump(w.q.r, w.q, stream); err != nil {
		w.end(err)
	}
	w.check(1)
}

// open makes a connection, and submits the commands.
func (w *hostWorld) open() {
	conn := w.socket.conn(w.t)
	w.c = newClient(w.t, 64)
	w.tr.queues.Begin()
	w.q = newHostQueue(w.tr, conn, host.QueueAttr{
		Remote: conn.RemoteAddr(), QID: 1, CNTLID: 1, Size: 64, InCapsule: 4096, Sink: w.c,
	})
	w.c.q = w.q
	w.q.decided.Store(true) // as Dial does
	w.q.w.dead.Store(true)
	go w.q.w.serve()
	resp := goodResp
	resp.Digests = w.tr.cfg.digests()
	if err := pump(w.q.r, w.q, resp.Append(nil)); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range w.all {
		r.ends.Store(0)
		w.c.submit(&r.Request)
	}
}

// end ends the connection as its reader would: every outstanding command ends.
func (w *hostWorld) end(err error) {
	if w.q == nil {
		return
	}
	w.q.end(err)
	w.q = nil
	w.check(1)
	for _, r := range w.all {
		if r.ends.Load() == 0 {
			w.t.Fatal("a command didn't end")
		}
	}
}

// check checks that each command ended at most the given number of times, and that nothing around its data was written.
func (w *hostWorld) check(most int32) {
	for _, r := range w.all {
		if n := r.ends.Load(); n > most {
			w.t.Fatalf("a command ended %d times", n)
		}
		for i := range fuzzAround {
			if r.memory[i] != 0 || r.memory[len(r.memory)-1-i] != 0 {
				w.t.Fatal("written outside of a command's data")
			}
		}
	}
}

// send sends a stream through a connection of its own, which ends with it.
func (w *hostWorld) send(stream []byte) {
	d := dialRaw(w.t, w.cfg, goodResp)
	_ = d.ctrl.SetDeadline(time.Now().Add(fuzzPatience))
	for _, r := range w.all {
		r.ends.Store(0)
		d.submit(&r.Request)
	}
	go func() { _, _ = io.Copy(io.Discard, d.ctrl) }()
	_, _ = d.ctrl.Write(stream)
	_ = d.ctrl.CloseWrite()
	select {
	case <-d.gone:
	case <-time.After(fuzzPatience):
		w.t.Fatal("the connection doesn't end")
	}
	for _, r := range w.all {
		if r.ends.Load() == 0 {
			w.t.Fatal("a command didn't end")
		}
	}
	w.check(1)
	_ = d.ctrl.Close()
	_ = d.tr.Close()
}
