package tcp

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// raw is a peer that sends what the test says.
type raw struct {
	t testing.TB
	peer
	digests pdu.Digests
}

func newRaw(t testing.TB, c net.Conn) *raw {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = c.Close() })
	return &raw{t: t, peer: c.(peer)}
}

// rawHost connects to a target.
func rawHost(t testing.TB, tt *testTarget) *raw {
	t.Helper()
	return rawFrom(t, tt, netip.Addr{})
}

// rawFrom connects to a target from an address.
func rawFrom(t testing.TB, tt *testTarget, addr netip.Addr) *raw {
	t.Helper()
	c, err := tt.cfg.Network.Dial(t.Context(), addr, tt.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return newRaw(t, peerOf(c))
}

// socketOf returns the socket.Conn of c.
func socketOf(t testing.TB, c net.Conn) socket.Conn {
	t.Helper()
	s, err := socket.Of(c.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// initialize exchanges ICReq and ICResp.
func (p *raw) initialize(req pdu.ICReq) {
	p.t.Helper()
	p.send(req.Append(nil))
	h, b := p.receive()
	if h.Type != pdu.TypeICResp {
		p.t.Fatalf("%v instead of ICResp", h.Type)
	}
	resp, err := pdu.ParseICResp(b)
	if err != nil {
		p.t.Fatal(err)
	}
	p.digests = resp.Digests
}

// connect makes the connection an admin queue of 32 entries.
func (p *raw) connect() {
	p.t.Helper()
	p.send(p.connectCapsule())
	if cqe := p.response(); !cqe.Status().OK() {
		p.t.Fatalf("Connect: status %v", cqe.Status())
	}
}

// connectCapsule is the Connect of an admin queue of 32 entries.
func (p *raw) connectCapsule() []byte {
	p.t.Helper()
	var cmd nvme.Command
	cmd.SetConnect(0, 31, 0, 0)
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
		p.t.Fatalf("Property Set: status %v", cqe.Status())
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
	c := pdu.CapsuleCmd{Header: p.header(pdu.TypeCapsuleCmd, data), Cmd: cmd}
	return p.end(c.Append(nil), data)
}

// data builds an H2CData or C2HData.
func (p *raw) data(d pdu.Data, data []byte) []byte {
	flags := d.Flags
	d.Header = p.header(d.Type, data)
	d.Flags |= flags
	if d.DATAL == 0 {
		d.DATAL = uint32(len(data))
	}
	return p.end(d.Append(nil), data)
}

func (p *raw) r2t(r pdu.R2T) []byte {
	r.Header = p.header(pdu.TypeR2T, nil)
	return r.Append(nil)
}

func (p *raw) resp(cid uint16, st nvme.Status) []byte {
	r := pdu.CapsuleResp{Header: p.header(pdu.TypeCapsuleResp, nil)}
	r.CQE.SetCID(cid)
	r.CQE.SetStatus(st)
	return r.Append(nil)
}

func (p *raw) header(t pdu.Type, data []byte) pdu.Header {
	return pdu.Format{Digests: p.digests}.Header(t, len(data))
}

// end adds data to what comes before it.
func (p *raw) end(head, data []byte) []byte {
	b := append(head, data...)
	if len(data) > 0 && p.digests&pdu.DigestData != 0 {
		b = pdu.AppendDigest(b, pdu.Digest(data))
	}
	return b
}

// Offsets of fields that only terminate requests name.
const (
	offType   = 0
	offHLEN   = 2
	offPDO    = 3
	offPFV    = 8
	offAlign  = 10
	offDigest = 11
	offLimit  = 12
)

func (p *raw) send(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// receive reads a PDU.
func (p *raw) receive() (pdu.Header, []byte) {
	p.t.Helper()
	var head [pdu.HeaderSize]byte
	if _, err := io.ReadFull(p, head[:]); err != nil {
		p.t.Fatal(err)
	}
	h := pdu.HeaderAt(head[:])
	b := make([]byte, h.PLEN)
	copy(b, head[:])
	if _, err := io.ReadFull(p, b[pdu.HeaderSize:]); err != nil {
		p.t.Fatalf("%v of %d bytes: %v", h.Type, h.PLEN, err)
	}
	return h, b
}

// expect reads a PDU of a type.
func (p *raw) expect(t pdu.Type) []byte {
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
	return *nvme.CompletionAt(p.expect(pdu.TypeCapsuleResp)[pdu.HeaderSize:])
}

// terminated expects a terminate request, and then the end of the connection.
func (p *raw) terminated(fes pdu.FES, fei uint32, offence []byte) {
	p.t.Helper()
	h, b := p.receive()
	if h.Type != pdu.TypeC2HTermReq && h.Type != pdu.TypeH2CTermReq {
		p.t.Fatalf("%v instead of a terminate request", h.Type)
	}
	r, err := pdu.ParseTermReq(b)
	if err != nil {
		p.t.Fatal(err)
	}
	if r.FES != fes || r.FEI != fei {
		p.t.Errorf("%v, FEI %#x; want %v, FEI %#x", r.FES, r.FEI, fes, fei)
	}
	if len(r.Offence) < pdu.HeaderSize || string(r.Offence) != string(offence[:len(r.Offence)]) {
		p.t.Errorf("offending header:\n got %x\nwant %x", r.Offence, offence)
	}
	if hlen := int(offence[offHLEN]); hlen >= pdu.HeaderSize && len(r.Offence) > hlen {
		p.t.Errorf("%d bytes of an offending header of %d", len(r.Offence), hlen)
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
