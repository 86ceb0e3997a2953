package tcp

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// raw is a peer that sends what the test says.
type raw struct {
	t testing.TB
	*net.TCPConn
	digests Digests
}

func newRaw(t testing.TB, c net.Conn) *raw {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = c.Close() })
	return &raw{t: t, TCPConn: c.(*net.TCPConn)}
}

// rawHost connects to a target.
func rawHost(t testing.TB, tt *testTarget) *raw {
	t.Helper()
	c, err := net.Dial("tcp", tt.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return newRaw(t, c)
}

// initialize exchanges ICReq and ICResp.
func (p *raw) initialize(req ICReq) ICResp {
	p.t.Helper()
	p.send(req.Append(nil))
	h, b := p.receive()
	if h.Type != TypeICResp {
		p.t.Fatalf("%v instead of ICResp", h.Type)
	}
	resp, err := ParseICResp(b)
	if err != nil {
		p.t.Fatal(err)
	}
	p.digests = resp.Digests
	return resp
}

// connect makes the connection an admin queue of size entries.
func (p *raw) connect(size int, attr nvme.CATTR) {
	p.t.Helper()
	p.send(p.connectCapsule(size, attr))
	if cqe := p.response(); !cqe.Status().OK() {
		p.t.Fatalf("Connect: status %#x", cqe.Status())
	}
}

// connectCapsule is the Connect of an admin queue of size entries.
func (p *raw) connectCapsule(size int, attr nvme.CATTR) []byte {
	p.t.Helper()
	var cmd nvme.Command
	cmd.SetConnect(0, uint16(size-1), attr, 0)
	d := nvme.ConnectData{CNTLID: nvme.CNTLIDDynamic, SubNQN: testNQN, HostNQN: hostNQN, HostID: nvme.HostID{1}}
	data, err := d.AppendTo(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.SGL1().SetBlock(nvme.SGLInCapsule, 0, uint32(len(data)))
	return p.capsule(cmd, data)
}

// enable sets CC.EN, so that admin commands work.
func (p *raw) enable() {
	p.t.Helper()
	p.send(p.enableCapsule())
	if cqe := p.response(); !cqe.Status().OK() {
		p.t.Fatalf("Property Set: status %#x", cqe.Status())
	}
}

func (p *raw) enableCapsule() []byte {
	var cmd nvme.Command
	cmd.SetPropertySet(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable))
	cmd.SGL1().SetBlock(nvme.SGLTransport, 0, 0)
	return p.capsule(cmd, nil)
}

// capsule builds a CapsuleCmd.
func (p *raw) capsule(cmd nvme.Command, data []byte) []byte {
	cmd.SetFlags(nvme.FlagsSGL)
	pdu := CapsuleCmd{Header: Header{Type: TypeCapsuleCmd, HLEN: CapsuleCmdSize, PLEN: CapsuleCmdSize}, Cmd: cmd}
	return p.pdu(&pdu.Header, func() []byte { return pdu.Append(nil) }, data)
}

// data builds an H2CData or C2HData.
func (p *raw) data(d Data, data []byte) []byte {
	d.HLEN, d.PLEN = DataSize, DataSize
	if d.DATAL == 0 {
		d.DATAL = uint32(len(data))
	}
	return p.pdu(&d.Header, func() []byte { return d.Append(nil) }, data)
}

func (p *raw) r2t(r R2T) []byte {
	r.Type, r.HLEN, r.PLEN = TypeR2T, R2TSize, R2TSize
	return p.pdu(&r.Header, func() []byte { return r.Append(nil) }, nil)
}

func (p *raw) resp(cid uint16, st nvme.Status) []byte {
	r := CapsuleResp{Header: Header{Type: TypeCapsuleResp, HLEN: CapsuleRespSize, PLEN: CapsuleRespSize}}
	r.CQE.SetCID(cid)
	r.CQE.SetStatus(st)
	return p.pdu(&r.Header, func() []byte { return r.Append(nil) }, nil)
}

// pdu adds digests and data to a header.
func (p *raw) pdu(h *Header, header func() []byte, data []byte) []byte {
	h.addDigest(p.digests&DigestHeader != 0)
	if len(data) > 0 {
		h.addData(len(data), 4, p.digests&DigestData != 0)
	}
	b := append(endHeader(header(), 0, *h), data...)
	if len(data) > 0 && p.digests&DigestData != 0 {
		b = appendDigest(b, data)
	}
	return b
}

func (p *raw) send(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// receive reads a PDU.
func (p *raw) receive() (Header, []byte) {
	p.t.Helper()
	var head [HeaderSize]byte
	if _, err := io.ReadFull(p, head[:]); err != nil {
		p.t.Fatal(err)
	}
	h := headerAt(head[:])
	b := make([]byte, h.PLEN)
	copy(b, head[:])
	if _, err := io.ReadFull(p, b[HeaderSize:]); err != nil {
		p.t.Fatalf("%v of %d bytes: %v", h.Type, h.PLEN, err)
	}
	return h, b
}

// expect reads a PDU of a type.
func (p *raw) expect(t Type) []byte {
	p.t.Helper()
	h, b := p.receive()
	if h.Type != t {
		p.t.Fatalf("%v instead of %v: %x", h.Type, t, b)
	}
	return b
}

// response reads a CapsuleResp.
func (p *raw) response() nvme.Completion {
	p.t.Helper()
	r, err := ParseCapsuleResp(p.expect(TypeCapsuleResp))
	if err != nil {
		p.t.Fatal(err)
	}
	return r.CQE
}

// terminated expects a terminate request, and then the end of the connection.
func (p *raw) terminated(fes FES, fei uint32, offence []byte) {
	p.t.Helper()
	h, b := p.receive()
	if h.Type != TypeC2HTermReq && h.Type != TypeH2CTermReq {
		p.t.Fatalf("%v instead of a terminate request", h.Type)
	}
	r, err := ParseTermReq(b)
	if err != nil {
		p.t.Fatal(err)
	}
	if r.FES != fes || r.FEI != fei {
		p.t.Errorf("%v, FEI %#x; want %v, FEI %#x", r.FES, r.FEI, fes, fei)
	}
	if len(r.Offence) < HeaderSize || string(r.Offence) != string(offence[:len(r.Offence)]) {
		p.t.Errorf("offending header:\n got %x\nwant %x", r.Offence, offence)
	}
	p.closed()
}

// closed expects the end of the connection.
func (p *raw) closed() {
	p.t.Helper()
	n, err := p.Read(make([]byte, 1))
	if n > 0 || (!errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !isReset(err)) {
		p.t.Errorf("the connection isn't closed: %d bytes, %v", n, err)
	}
}

func put16(b []byte, off int, v uint16) []byte {
	binary.LittleEndian.PutUint16(b[off:], v)
	return b
}

func put32(b []byte, off int, v uint32) []byte {
	binary.LittleEndian.PutUint32(b[off:], v)
	return b
}
