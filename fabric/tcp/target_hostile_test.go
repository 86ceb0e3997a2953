package tcp

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }

// pulling is a command whose data the engine pulls from the host.
func pulling(cid uint16) nvme.Command {
	var cmd nvme.Command
	cmd.SetConnect(0, 31, 0, 0)
	cmd.SetCID(cid)
	cmd.SGL1().SetBlock(nvme.SGLTransport, 0, nvme.ConnectDataSize)
	return cmd
}

// wrongPDU is a PDU that ends its connection, and the terminate request that the specification asks for.
type wrongPDU struct {
	name string
	pdu  []byte
	fes  pdu.FES
	fei  uint32
}

// wrongHeader is a PDU of which only the header is checked.
func wrongHeader(typ pdu.Type, flags, hlen, pdo uint8, plen uint32) []byte {
	b := pdu.Header{Type: typ, Flags: flags, HLEN: hlen, PDO: pdo, PLEN: plen}.Append(nil)
	return append(b, make([]byte, 128-pdu.HeaderSize)...)
}

// wrongFirst are PDUs that no connection may begin with.
var wrongFirst = []wrongPDU{
	{"command first", wrongHeader(pdu.TypeCapsuleCmd, 0, 72, 0, 72), pdu.FESSequence, 0},
	{"PFV", pdu.ICReq{PFV: 1}.Append(nil), pdu.FESUnsupportedParm, offPFV},
	{"HPDA", pdu.ICReq{HPDA: 32}.Append(nil), pdu.FESInvalidHeader, offAlign},
	{"PLEN of ICReq", wrongHeader(pdu.TypeICReq, 0, 128, 0, 127), pdu.FESInvalidHeader, pdu.OffPLEN},
	{"garbage", []byte("GET / HTTP/1.1\r\n\r\n"), pdu.FESInvalidHeader, offType},
}

// wrongLater are PDUs that are wrong on a connected queue.
var wrongLater = []wrongPDU{
	{"second ICReq", pdu.ICReq{}.Append(nil), pdu.FESSequence, 0},
	{"type", wrongHeader(0x55, 0, 24, 0, 24), pdu.FESInvalidHeader, offType},
	{"direction", wrongHeader(pdu.TypeC2HData, pdu.FlagLast, 24, 24, 100), pdu.FESSequence, 0},
	{"HLEN", wrongHeader(pdu.TypeCapsuleCmd, 0, 64, 0, 72), pdu.FESInvalidHeader, offHLEN},
	{"PLEN", wrongHeader(pdu.TypeCapsuleCmd, 0, 72, 0, 70), pdu.FESInvalidHeader, pdu.OffPLEN},
	{"PDO", wrongHeader(pdu.TypeCapsuleCmd, 0, 72, 40, 1000), pdu.FESInvalidHeader, offPDO},
	{"HDGSTF", wrongHeader(pdu.TypeCapsuleCmd, pdu.FlagHDGST, 72, 0, 76), pdu.FESInvalidHeader, pdu.OffFlags},
	{"DDGSTF", wrongHeader(pdu.TypeCapsuleCmd, pdu.FlagDDGST, 72, 72, 100), pdu.FESInvalidHeader, pdu.OffFlags},
	{"in-capsule data", wrongHeader(pdu.TypeCapsuleCmd, 0, 72, 72, 72+fabricsInCapsule+4), pdu.FESInvalidHeader, pdu.OffPLEN},
	{"PLEN of 4 GiB", wrongHeader(pdu.TypeCapsuleCmd, 0, 72, 72, 0xffffffff), pdu.FESInvalidHeader, pdu.OffPLEN},
	{"TTAG of nothing", append(put32(wrongHeader(pdu.TypeH2CData, pdu.FlagLast, 24, 24, 24+4), pdu.OffDATAL, 4), 0), pdu.FESInvalidHeader, pdu.OffTTAG},
	{"TTAG out of range", put16(wrongHeader(pdu.TypeH2CData, pdu.FlagLast, 24, 24, 24+4), pdu.OffTTAG, 0xffff), pdu.FESInvalidHeader, pdu.OffTTAG},
}

// TestTargetTerminates sends every kind of wrong PDU and expects the terminate request that the
// specification asks for.
func TestTargetTerminates(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{MaxH2CData: 4096})
	for _, c := range wrongFirst {
		t.Run(c.name, func(t *testing.T) {
			p := rawHost(t, tt)
			p.send(c.pdu)
			p.terminated(c.fes, c.fei, c.pdu)
		})
	}
	for _, c := range wrongLater {
		t.Run(c.name, func(t *testing.T) {
			p := rawHost(t, tt)
			p.initialize(pdu.ICReq{})
			p.connect()
			p.send(c.pdu)
			p.terminated(c.fes, c.fei, c.pdu)
		})
	}
	if got, want := tt.Counters().ProtocolErrors.Load(), uint64(len(wrongFirst)+len(wrongLater)); got != want {
		t.Errorf("%d protocol errors counted, %d made", got, want)
	}
	waitFor(t, "the end of all connections", func() bool { return tt.Counters().Connections.Load() == 0 })
	if n := tt.Counters().Limited.Load(); n != 0 {
		t.Errorf("%d are counted as refused for a limit", n)
	}
	if got := tt.Counters().Rejected.Load(); got != uint64(len(wrongFirst)) {
		t.Errorf("%d connections count as rejected, want %d", got, len(wrongFirst))
	}
	for range len(wrongFirst) + len(wrongLater) {
		if err := <-tt.errs; !errors.Is(err, ErrProtocol) {
			t.Error(err)
		}
	}
}

// TestTargetTLS: of a host that asks for TLS the target logs just that, so that nobody looks for a fault elsewhere.
func TestTargetTLS(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	p := rawHost(t, tt)
	if err := tls.Client(p, &tls.Config{InsecureSkipVerify: true}).Handshake(); err == nil {
		t.Error("the target speaks TLS")
	}
	_ = p.Close()
	if err := <-tt.errs; !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "TLS, which isn't supported") {
		t.Error(err)
	}
}

// TestTargetDataTerminates breaks the rules of H2CData, with an R2T for 1024 bytes outstanding. Data out of order is a
// sequence error, and data outside of what the R2T asked for is out of range (NVMe/TCP, section 3.3.2.2); neither has an
// FEI (figure "Controller to Host Terminate Connection Request PDU").
func TestTargetDataTerminates(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{MaxH2CData: 4096})
	data := make([]byte, 8192)
	for _, c := range []struct {
		name string
		data pdu.Data
		n    int
		fes  pdu.FES
		fei  uint32
	}{
		{"CCCID", pdu.Data{Header: pdu.Header{Flags: pdu.FlagLast}, CCCID: 8}, 1024, pdu.FESInvalidHeader, pdu.OffCCCID},
		{"TTAG", pdu.Data{Header: pdu.Header{Flags: pdu.FlagLast}, TTAG: 5}, 1024, pdu.FESInvalidHeader, pdu.OffTTAG},
		{"DATAL", pdu.Data{Header: pdu.Header{Flags: pdu.FlagLast}, DATAL: 1000}, 1024, pdu.FESInvalidHeader, pdu.OffDATAL},
		{"DATAL beyond MAXH2CDATA", pdu.Data{Header: pdu.Header{Flags: pdu.FlagLast}}, 4100, pdu.FESLimitExceeded, 0},
		{"gap", pdu.Data{Header: pdu.Header{Flags: pdu.FlagLast}, DATAO: 4}, 1020, pdu.FESSequence, 0},
		{"beyond the R2T", pdu.Data{Header: pdu.Header{Flags: pdu.FlagLast}, DATAO: 1024}, 4, pdu.FESOutOfRange, 0},
		{"too much", pdu.Data{Header: pdu.Header{Flags: pdu.FlagLast}}, 1028, pdu.FESOutOfRange, 0},
		{"LAST too soon", pdu.Data{Header: pdu.Header{Flags: pdu.FlagLast}}, 512, pdu.FESInvalidHeader, pdu.OffFlags},
		{"LAST missing", pdu.Data{}, 1024, pdu.FESInvalidHeader, pdu.OffFlags},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := rawHost(t, tt)
			p.initialize(pdu.ICReq{})
			p.send(p.capsule(pulling(7), nil))
			r, err := pdu.ParseR2T(p.expect(pdu.TypeR2T))
			if err != nil || r.CCCID != 7 || r.R2TO != 0 || r.R2TL != nvme.ConnectDataSize {
				t.Fatalf("%+v, %v", r, err)
			}
			d := c.data
			d.Type = pdu.TypeH2CData
			if d.CCCID == 0 {
				d.CCCID = 7
			}
			d.TTAG += r.TTAG
			sent := p.data(d, data[:c.n])
			p.send(sent)
			p.terminated(c.fes, c.fei, sent)
		})
	}
}

// TestTargetDataBeforeR2T sends a command together with the data that it will be asked for. The slots of a connection are
// few, so their tags are easy to guess.
func TestTargetDataBeforeR2T(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	p := rawHost(t, tt)
	p.initialize(pdu.ICReq{})
	sent := p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeH2CData, Flags: pdu.FlagLast}, CCCID: 7, TTAG: growRequests - 1},
		make([]byte, nvme.ConnectDataSize))
	p.send(append(p.capsule(pulling(7), nil), sent...))
	p.expect(pdu.TypeR2T) // too late
	p.terminated(pdu.FESInvalidHeader, pdu.OffTTAG, sent)
}

// TestTargetHeaderDigest damages a header on a connection with header digests.
func TestTargetHeaderDigest(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	p := rawHost(t, tt)
	p.initialize(pdu.ICReq{Digests: pdu.DigestHeader})
	p.connect()
	sent := put32(p.capsule(identify(1), nil), pdu.CapsuleCmdSize, 0xdeadbeef)
	p.send(sent)
	p.terminated(pdu.FESHeaderDigest, 0xdeadbeef, sent)
	if tt.Counters().HeaderDigestErrors.Load() != 1 {
		t.Error("not counted")
	}
}

// TestTargetDataDigest damages data: the command fails, and may be sent again; the connection lives.
func TestTargetDataDigest(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	p := rawHost(t, tt)
	p.initialize(pdu.ICReq{Digests: pdu.DigestData})

	t.Run("in a capsule", func(t *testing.T) {
		cmd := pulling(3)
		cmd.SGL1().SetBlock(nvme.SGLInCapsule, 0, nvme.ConnectDataSize)
		sent := p.capsule(cmd, make([]byte, nvme.ConnectDataSize))
		sent[pdu.CapsuleCmdSize+100] ^= 1
		p.send(sent)
		if cqe := p.response(); cqe.Status()&^nvme.StatusMore != nvme.StatusTransientTransport || cqe.CID() != 3 {
			t.Errorf("status %v, CID %d", cqe.Status(), cqe.CID())
		}
	})
	t.Run("in H2CData", func(t *testing.T) {
		p.send(p.capsule(pulling(4), nil))
		r, err := pdu.ParseR2T(p.expect(pdu.TypeR2T))
		if err != nil {
			t.Fatal(err)
		}
		sent := p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeH2CData, Flags: pdu.FlagLast}, CCCID: 4, TTAG: r.TTAG},
			make([]byte, nvme.ConnectDataSize))
		sent[len(sent)-1] ^= 0x80
		p.send(sent)
		cqe := p.response()
		if cqe.Status()&^nvme.StatusMore != nvme.StatusTransientTransport || cqe.CID() != 4 {
			t.Errorf("status %v, CID %d", cqe.Status(), cqe.CID())
		}
	})
	t.Run("in the first H2CData of two", func(t *testing.T) {
		p.send(p.capsule(pulling(5), nil))
		r, err := pdu.ParseR2T(p.expect(pdu.TypeR2T))
		if err != nil {
			t.Fatal(err)
		}
		const half = nvme.ConnectDataSize / 2
		part := func(flags uint8, off uint32) []byte {
			return p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeH2CData, Flags: flags}, CCCID: 5, TTAG: r.TTAG, DATAO: off},
				make([]byte, half))
		}
		damaged := part(0, 0)
		damaged[len(damaged)-1] ^= 0x80
		p.send(append(damaged, part(pdu.FlagLast, half)...))
		if cqe := p.response(); cqe.Status()&^nvme.StatusMore != nvme.StatusTransientTransport || cqe.CID() != 5 {
			t.Errorf("status %v, CID %d", cqe.Status(), cqe.CID())
		}
	})
	p.connect()
	if n := tt.Counters().DataDigestErrors.Load(); n != 3 {
		t.Errorf("%d data digest errors counted", n)
	}
}

// TestTargetSGL sends descriptors that NVMe/TCP doesn't know.
func TestTargetSGL(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	p := rawHost(t, tt)
	p.initialize(pdu.ICReq{})
	p.connect()
	p.enable()
	data := make([]byte, 4096)
	for _, c := range []struct {
		name   string
		change func(*nvme.SGL)
		data   []byte
		want   nvme.Status
	}{
		{"keyed", func(s *nvme.SGL) { s.SetKeyed(nvme.SGLKeyed, 0, 4096, 1) }, nil, nvme.StatusSGLTypeInvalid},
		{"address", func(s *nvme.SGL) { s.SetBlock(nvme.SGLDataBlockAddress, 0, 4096) }, nil, nvme.StatusSGLTypeInvalid},
		{"capsule for a read", func(s *nvme.SGL) { s.SetBlock(nvme.SGLInCapsule, 0, 4096) }, data, nvme.StatusInvalidField},
		{"transport, too long", func(s *nvme.SGL) { s.SetBlock(nvme.SGLTransport, 0, 1<<30) }, nil, nvme.StatusSGLLengthInvalid},
	} {
		cmd := identify(9)
		c.change(cmd.SGL1())
		p.send(p.capsule(cmd, c.data))
		if cqe := p.response(); cqe.Status().Code() != c.want {
			t.Errorf("%s: status %v, want %v", c.name, cqe.Status().Code(), c.want)
		}
	}
	for _, c := range []struct {
		name      string
		off       uint64
		length, n int
		want      nvme.Status
	}{
		{"offset of the end", 1024, 1024, 1024, nvme.StatusSGLOffsetInvalid},
		{"longer than the capsule", 0, 1024, 512, nvme.StatusSGLLengthInvalid},
	} {
		cmd := pulling(10)
		cmd.SGL1().SetBlock(nvme.SGLInCapsule, c.off, uint32(c.length))
		q := rawHost(t, tt)
		q.initialize(pdu.ICReq{})
		q.send(q.capsule(cmd, data[:c.n]))
		if cqe := q.response(); cqe.Status().Code() != c.want {
			t.Errorf("%s: status %v, want %v", c.name, cqe.Status().Code(), c.want)
		}
	}
}

// TestTargetTooManyCommands sends more commands than a queue of the listener holds.
func TestTargetTooManyCommands(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{QueueDepth: 32})
	p := rawHost(t, tt)
	p.initialize(pdu.ICReq{})
	p.connect()
	p.enable()
	var cmd nvme.Command
	cmd.SetSetFeatures(nvme.FeatTimestamp, false, 0, 0)
	cmd.SGL1().SetBlock(nvme.SGLTransport, 0, 8)
	for i := range 32 {
		cmd.SetCID(uint16(i))
		p.send(p.capsule(cmd, nil))
		p.expect(pdu.TypeR2T)
	}
	sent := p.capsule(cmd, nil)
	p.send(sent)
	p.terminated(pdu.FESSequence, 0, sent)
}

// TestTargetInlineLimits: IOCCSZ limits the data in the capsules of I/O commands. Fabrics commands, and those of the
// admin queue, may carry 8 KiB whatever it says (section 3.4.1).
func TestTargetInlineLimits(t *testing.T) {
	const limit = 4096
	tt := newTestTarget(t, TargetConfig{InCapsule: limit})
	admin, io := rawIO(t, tt, netip.Addr{}, 32)
	inCapsule := func(cmd nvme.Command, n int) (nvme.Command, []byte) {
		cmd.SGL1().SetBlock(nvme.SGLInCapsule, 0, uint32(n))
		return cmd, make([]byte, n)
	}
	var auth nvme.Command
	auth.SetAuthSend(fabricsInCapsule)
	for _, p := range []*raw{admin, io} {
		p.send(p.capsule(inCapsule(auth, fabricsInCapsule)))
		p.response() // an error: nobody is asked to authenticate itself here
	}
	io.send(io.capsule(inCapsule(ioCommand(nvme.OpWrite, 0, limit), limit)))
	if cqe := io.response(); !cqe.Status().OK() {
		t.Errorf("a write in its capsule: %v", cqe.Status())
	}
	wrong := io.capsule(inCapsule(ioCommand(nvme.OpWrite, 0, limit+512), limit+512))
	io.send(wrong)
	io.terminated(pdu.FESInvalidHeader, pdu.OffPLEN, wrong)
	_, _ = admin.Close(), io.Close()
	if err, ok := soon.Receive(tt.errs); !ok || !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
}

// TestTargetTTAGBehindSlots: the first tag beyond the slots is refused like any other wrong one.
func TestTargetTTAGBehindSlots(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	p := rawHost(t, tt)
	p.initialize(pdu.ICReq{})
	p.connect()
	sent := p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeH2CData}, CCCID: 1, TTAG: growRequests}, make([]byte, 512))
	p.send(sent)
	p.terminated(pdu.FESInvalidHeader, pdu.OffTTAG, sent)
	_ = p.Close()
	if err := <-tt.errs; !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
}

// TestTargetTerminated sends an H2CTermReq.
func TestTargetTerminated(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	p := rawHost(t, tt)
	p.initialize(pdu.ICReq{})
	p.connect()
	p.send(pdu.TermReq{Type: pdu.TypeH2CTermReq, FES: pdu.FESOutOfRange, FEI: 12,
		Offence: pdu.Header{Type: pdu.TypeC2HData, HLEN: 24, PLEN: 24}.Append(nil)}.Append(nil))
	p.closed()
	var te *TerminatedError
	if err := <-tt.errs; !errors.As(err, &te) || te.FES != pdu.FESOutOfRange || te.FEI != 12 || te.Offence != "C2HData" {
		t.Errorf("the connection ended with %v, want one out of range at 12 of a C2HData", err)
	}
}

// TestTargetMalformedTermReq: an H2CTermReq whose PLEN is below 24 or above 152 is ignored, which means not answered
// either, and the connection ends at once (NVMe/TCP, section 3.5).
func TestTargetMalformedTermReq(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	for _, plen := range []uint32{pdu.TermReqSize - 1, pdu.TermReqSize + pdu.MaxTermData + 1} {
		p := rawHost(t, tt)
		p.initialize(pdu.ICReq{})
		p.connect()
		p.send(put32(pdu.TermReq{Type: pdu.TypeH2CTermReq, FES: pdu.FESSequence}.Append(nil), pdu.OffPLEN, plen))
		p.closed()
		if err := <-tt.errs; !errors.Is(err, ErrProtocol) {
			t.Errorf("PLEN %d: %v", plen, err)
		}
	}
}
