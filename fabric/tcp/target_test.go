package tcp

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }

// identify is an Identify Controller, with the data to come as the SGL says.
func identify(cid uint16) nvme.Command {
	var cmd nvme.Command
	cmd.SetIdentify(nvme.CNSController, 0, 0, 0)
	cmd.SetCID(cid)
	cmd.SGL1().SetBlock(nvme.SGLTransport, 0, 4096)
	return cmd
}

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
	{"in-capsule data", wrongHeader(pdu.TypeCapsuleCmd, 0, 72, 72, 72+fabricsInCapsule+4), pdu.FESLimitExceeded, pdu.OffPLEN},
	{"PLEN of 4 GiB", wrongHeader(pdu.TypeCapsuleCmd, 0, 72, 72, 0xffffffff), pdu.FESLimitExceeded, pdu.OffPLEN},
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

// TestTargetDataTerminates breaks the rules of H2CData, with an R2T for 1024 bytes outstanding.
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
		{"DATAL beyond MAXH2CDATA", pdu.Data{Header: pdu.Header{Flags: pdu.FlagLast}}, 4100, pdu.FESLimitExceeded, pdu.OffDATAL},
		{"gap", pdu.Data{Header: pdu.Header{Flags: pdu.FlagLast}, DATAO: 4}, 1020, pdu.FESOutOfRange, pdu.OffDATAO},
		{"too much", pdu.Data{Header: pdu.Header{Flags: pdu.FlagLast}}, 1028, pdu.FESOutOfRange, pdu.OffDATAO},
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
			// FEI is the offset of the field; for 4 and 5 the specification's table has no FEI, and
			// ours says where the fault was seen.
			p.terminated(c.fes, c.fei, sent)
		})
	}
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
		{"offset", 8, 1024, 1032, nvme.StatusSGLOffsetInvalid},
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

// TestTargetAlignment asks for every kind of alignment of received data (HPDA).
func TestTargetAlignment(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	for _, hpda := range []uint8{0, 1, 3, 7, 30, 31} {
		for _, digests := range []pdu.Digests{0, pdu.DigestHeader | pdu.DigestData} {
			p := rawHost(t, tt)
			p.initialize(pdu.ICReq{HPDA: hpda, Digests: digests})
			p.connect()
			p.enable()
			p.send(p.capsule(identify(2), nil))
			h, b := p.receive()
			if h.Type != pdu.TypeC2HData || int(h.PDO)%(4*(int(hpda)+1)) != 0 {
				t.Fatalf("HPDA %d: %v with PDO %d", hpda, h.Type, h.PDO)
			}
			ru := pdu.Rules{Self: pdu.Host, Ready: true, Format: pdu.Format{Digests: digests, PDA: hpda}}
			if err := ru.Check(h); err != nil {
				t.Errorf("HPDA %d: %v", hpda, err)
			}
			data := b[h.PDO:][:h.DataLen()]
			if h.DataLen() != 4096 || !bytes.Contains(data, []byte(testNQN)) {
				t.Errorf("HPDA %d: %d bytes of data", hpda, h.DataLen())
			}
			if cqe := p.response(); !cqe.Status().OK() {
				t.Errorf("HPDA %d: status %v", hpda, cqe.Status())
			}
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
		t.Errorf("%v", err)
	}
}

// TestTargetDisconnect cuts the connection at every byte of an exchange: the target frees everything
// (newTestTarget and TestMain check that).
func TestTargetDisconnect(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	var stream []byte
	script := &raw{t: t}
	stream = append(stream, pdu.ICReq{}.Append(nil)...)
	stream = append(stream, script.capsule(pulling(1), nil)...)
	stream = append(stream, script.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeH2CData}, CCCID: 1, TTAG: 0}, make([]byte, 512))...)
	cmd := pulling(2)
	cmd.SGL1().SetBlock(nvme.SGLInCapsule, 0, nvme.ConnectDataSize)
	stream = append(stream, script.capsule(cmd, make([]byte, nvme.ConnectDataSize))...)
	for n := 0; n < len(stream); n += 37 {
		p := rawHost(t, tt)
		if n > pdu.ICSize+pdu.CapsuleCmdSize { // H2CData may only follow its R2T
			p.send(stream[:pdu.ICSize+pdu.CapsuleCmdSize])
			p.expect(pdu.TypeICResp)
			p.expect(pdu.TypeR2T)
			p.send(stream[pdu.ICSize+pdu.CapsuleCmdSize : n])
		} else {
			p.send(stream[:n])
		}
		if n%2 == 0 {
			_ = p.SetLinger(0) // RST instead of FIN
		}
		_ = p.Close()
	}
	waitFor(t, "the end of all connections", func() bool { return tt.Counters().Connections.Load() == 0 })
}

// waitFor polls for a condition that another goroutine makes true.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if !soon.Until(ok) {
		t.Fatalf("no %s", what)
	}
}

// TestTargetTimeout leaves connections without ICReq and without Connect.
func TestTargetTimeout(t *testing.T) {
	t.Parallel()
	tt := newTestTarget(t, TargetConfig{ConnectTimeout: time.Second})
	silent := rawHost(t, tt)
	halfway := inTime(t, tt, pdu.ICReq{}.Append(nil), pdu.ICSize)
	silent.closed()
	halfway.closed()
	for range 2 {
		if err := <-tt.errs; !errors.Is(err, ErrHandshake) {
			t.Error(err)
		}
	}
}

// TestTargetTimeoutEnds checks that the limit doesn't apply once Connect has succeeded.
func TestTargetTimeoutEnds(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	tt := newTestTarget(t, TargetConfig{ConnectTimeout: limit})
	p := inTime(t, tt, append(pdu.ICReq{}.Append(nil), (&raw{t: t}).connectCapsule()...), pdu.ICSize+pdu.CapsuleRespSize)
	time.Sleep(limit + limit/10) // nothing may happen meanwhile
	p.enable()
}

// inTime returns a connection on which what is sent first gets its answer, of n bytes, before the target's time limit is
// over. On a machine that stands still for that long this may take several attempts.
func inTime(t *testing.T, tt *testTarget, first []byte, n int) *raw {
	t.Helper()
	var err error
	for range 20 {
		p := rawHost(t, tt)
		if _, err = p.Write(first); err == nil {
			_, err = io.ReadFull(p, make([]byte, n))
		}
		if err == nil {
			return p
		}
	}
	t.Fatal(err)
	return nil
}

// TestTargetLimit opens one more connection than allowed.
func TestTargetLimit(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{MaxConns: 1})
	first := rawHost(t, tt)
	first.initialize(pdu.ICReq{})
	second := rawHost(t, tt)
	second.closed()
	if err := <-tt.errs; !errors.Is(err, ErrTooMany) || !strings.Contains(err.Error(), "not accepted") {
		t.Error(err)
	}
	_ = first.Close()
	waitFor(t, "end of the first connection", func() bool { return tt.Counters().Connections.Load() == 0 })
	third := rawHost(t, tt)
	third.initialize(pdu.ICReq{})
}

// TestNoneAccepted: what keeps a listener from accepting any connection is logged once, with its own address and no
// host's.
func TestNoneAccepted(t *testing.T) {
	var text lockedBuffer
	l, err := ListenTarget(anyPort, newTestTarget(t, TargetConfig{}).engine, TargetConfig{Log: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.tcp.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the log", func() bool { return strings.Contains(text.String(), "\n") })
	time.Sleep(3 * acceptPause)
	line, more, _ := strings.Cut(text.String(), "\n")
	if more != "" {
		t.Errorf("said again: %s", more)
	}
	if !strings.Contains(line, "not accepted") || strings.Contains(line, "remote=") || !strings.Contains(line, " local="+l.Addr().String()) ||
		!strings.Contains(line, `err="nvme/tcp accept: `) {
		t.Error(line)
	}
}

// TestEngineSpeaks: the engine logs why it ended a connection, so the listener doesn't.
func TestEngineSpeaks(t *testing.T) {
	vol, err := blockdev.NewMemory(blockdev.Options{Size: testSize, BlockSize: block})
	if err != nil {
		t.Fatal(err)
	}
	engine := newLimitedTarget(t, TargetConfig{}, vol, target.Limits{ConnectTimeout: 20 * time.Millisecond}).engine
	var text lockedBuffer
	l, err := ListenTarget(anyPort, engine, TargetConfig{Log: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Error(err)
	}
	_ = conn.Close()
	for _, err := range []error{target.ErrKeepAlive, target.ErrAuthentication, target.ErrControllerGone, target.ErrNotAllowed, target.ErrGaveWay} {
		l.report(anyPort, err)
	}
	if err := l.Close(); err != nil { // returns after everything is logged
		t.Error(err)
	}
	if s := text.String(); s != "" {
		t.Error(s)
	}
}

// TestNothingToWarnOf: a probe of the port is no warning, and a host whose Connect the engine refused, and logged, and
// that closes the connection then, is none of the listener's business.
func TestNothingToWarnOf(t *testing.T) {
	var text lockedBuffer
	l, err := ListenTarget(anyPort, newTestTarget(t, TargetConfig{}).engine, TargetConfig{Log: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	transport, err := NewTransport(HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	ctrl, err := host.Connect(t.Context(), host.Config{Transport: transport, Remote: l.Addr(), SubNQN: "nqn.2026-11.org.example:absent"})
	if err == nil {
		_ = ctrl.Close()
		t.Fatal("there is such a subsystem")
	}
	waitFor(t, "the end of the connection", func() bool { return l.Counters().Connections.Load() == 0 })
	if s := text.String(); s != "" {
		t.Errorf("of a refused host: %s", s)
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	waitFor(t, "the log", func() bool { return text.String() != "" })
	if s := text.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "level=INFO") || !strings.Contains(s, ErrPeerClosed.Error()) {
		t.Errorf("of a probe: %s", s)
	}
}

// TestOffenderIsNamed: what is logged of a host that violates the protocol, or says that we do, names it by the key that
// every message has for it.
func TestOffenderIsNamed(t *testing.T) {
	var text lockedBuffer
	l, err := ListenTarget(anyPort, newTestTarget(t, TargetConfig{}).engine, TargetConfig{Log: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	termReq := make([]byte, 24)
	termReq[0], termReq[2], termReq[4] = byte(pdu.TypeH2CTermReq), 24, 24 // PDU-Type, HLEN, PLEN
	termReq[8] = byte(pdu.FESSequence)
	for what, sent := range map[string][]byte{"of another protocol": bytes.Repeat([]byte("GET /"), 40), "a terminate request": termReq} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(sent); err != nil {
			t.Fatal(err)
		}
		remote := " remote=" + conn.LocalAddr().String() + " "
		waitFor(t, "the log", func() bool { return strings.Contains(text.String(), conn.LocalAddr().String()) })
		if !strings.Contains(text.String(), remote) {
			t.Errorf("%s: there is no%sin\n%s", what, remote, text.String())
		}
		_ = conn.Close()
	}
}

// lockedBuffer is a buffer that another goroutine may write to meanwhile.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestRefusedConnectionsCostNothing: a connection beyond the limit is closed before it has buffers.
func TestRefusedConnectionsCostNothing(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{MaxConns: 1})
	rawHost(t, tt).initialize(pdu.ICReq{})
	const many = 32
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range many {
		p := rawHost(t, tt)
		p.closed()
		_ = p.Close()
		if err := <-tt.errs; !errors.Is(err, ErrTooMany) {
			t.Error(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / many; got > chunkSize/4 {
		t.Errorf("%d bytes for a connection that is refused", got)
	}
}

// TestTargetSlowReader: one host sends commands and reads nothing, while another works.
func TestTargetSlowReader(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{QueueDepth: 64})
	slow := rawHost(t, tt)
	slow.initialize(pdu.ICReq{})
	slow.connect()
	slow.enable()
	const commands = 3000
	go func() {
		var batch []byte
		for i := range commands {
			batch = append(batch, slow.capsule(identify(uint16(i)), nil)...)
		}
		_, _ = slow.Write(batch)
	}()
	waitFor(t, "blocked send", func() bool { return tt.Counters().Out.Blocked.Load() > 0 })
	p := newPair(t, tt.Addr(), clientOptions{})
	transferAll(t, p)
	for i := range commands {
		if b := slow.expect(pdu.TypeC2HData); len(b) != pdu.DataSize+4096 {
			t.Fatalf("%d bytes", len(b))
		}
		if cqe := slow.response(); int(cqe.CID()) != i {
			t.Fatalf("CID %d instead of %d", cqe.CID(), i)
		}
	}
}

// diskInWait is a ring on which an answer is pending.
type diskInWait struct{ left atomic.Int32 }

func (d *diskInWait) Awaited() bool { return true }
func (d *diskInWait) Look() bool    { return false }
func (d *diskInWait) Left()         { d.left.Add(1) }

// TestSlowReaderIsOffDuty: the reader of a connection that waits for its host to read isn't on duty meanwhile, so that
// others that go off duty don't rely on it for what they wait for.
func TestSlowReaderIsOffDuty(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{QueueDepth: 64})
	slow := rawHost(t, tt)
	slow.initialize(pdu.ICReq{})
	slow.connect()
	slow.enable()
	go func() {
		var batch []byte
		for i := range 3000 {
			batch = append(batch, slow.capsule(identify(uint16(i)), nil)...)
		}
		_, _ = slow.Write(batch)
	}()
	all := func(c *targetConn) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.busy == tt.cfg.QueueDepth && c.responding.Load() > 0
	}
	waitFor(t, "a reader that waits for a slot", func() bool {
		tt.mu.Lock()
		defer tt.mu.Unlock()
		for c := range tt.conns {
			if all(c) {
				return true
			}
		}
		return false
	})
	disk := new(diskInWait)
	duty.AddRing(disk)
	defer duty.RemoveRing(disk)
	other := duty.NewAttendant(func() {})
	defer other.Close()
	waitFor(t, "that nobody is left to look", func() bool {
		other.Arrive()
		other.Look()
		before := disk.left.Load()
		other.Leave() // nobody else looks
		return disk.left.Load() > before
	})
	if tt.Counters().Connections.Load() == 0 {
		t.Error("only when the connection had ended")
	}
}

// TestTargetStop ends the listener with a command outstanding.
func TestTargetStop(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	p := rawHost(t, tt)
	p.initialize(pdu.ICReq{})
	p.connect()
	p.enable()
	var cmd nvme.Command
	cmd.SetAsyncEvent()
	cmd.SGL1().SetBlock(nvme.SGLTransport, 0, 0)
	p.send(p.capsule(cmd, nil))
	p.send(p.capsule(identify(1), nil)) // answered, so the event request has arrived
	p.expect(pdu.TypeC2HData)
	p.response()
	if err := tt.Close(); err != nil {
		t.Error(err)
	}
	p.expect(pdu.TypeCapsuleResp) // to the event request, aborted
	p.closed()
	if _, err := net.Dial("tcp", tt.Addr().String()); err == nil {
		t.Error("a closed listener accepts")
	}
}

// TestListenEverywhere: the zero address means every address, of both families.
func TestListenEverywhere(t *testing.T) {
	engine, err := target.New(target.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(t.Context())
	l, err := ListenTarget(netip.AddrPort{}, engine, TargetConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	four, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(l.Addr().Port()))), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer four.Close()
	if !l.Addr().Addr().IsUnspecified() {
		t.Errorf("it listens on %v", l.Addr())
	}
}

func TestTargetConfig(t *testing.T) {
	for _, c := range []TargetConfig{{QueueDepth: 1}, {QueueDepth: 5000}, {InCapsule: 17}, {InCapsule: 2 << 20},
		{MaxTransfer: 5000}, {MaxTransfer: 2048}, {MaxTransfer: 32 << 20}, {MaxH2CData: 4095}, {MaxH2CData: 4098}, {MaxH2CData: 1024},
		{Memory: 4096}, {PeerMemory: -1}, {PeerMemory: defaultMemory + 1}, {MaxConns: -1}, {MaxPeerConns: -1}, {ConnectTimeout: -1},
		{DataTimeout: -1}} {
		if _, err := ListenTarget(anyPort, nil, c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []TargetConfig{{}, {QueueDepth: 2}, {QueueDepth: 4096}, {InCapsule: 1 << 20}, {MaxTransfer: 4096}, {MaxTransfer: 16 << 20},
		{MaxH2CData: 4096}, {Memory: defaultMaxTransfer, PeerMemory: defaultMaxTransfer}, {MaxConns: 1, MaxPeerConns: 1},
		{ConnectTimeout: 1, DataTimeout: 1}} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	engine, err := target.New(target.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(t.Context())
	l, err := ListenTarget(anyPort, engine, TargetConfig{InCapsule: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ListenTarget(l.Addr(), nil, TargetConfig{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listening twice on %v: %v", l.Addr(), err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := net.Dial("tcp", l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting after Close: %v", err)
	}
}

// TestTargetInlineLimits: IOCCSZ limits the data in the capsules of I/O commands. Fabrics commands, and those of the
// admin queue, may carry 8 KiB whatever it says (section 3.4.1).
func TestTargetInlineLimits(t *testing.T) {
	const limit = 4096
	tt := newTestTarget(t, TargetConfig{InCapsule: limit})
	admin, io := rawIO(t, tt, "127.0.0.1", 32)
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
	io.terminated(pdu.FESLimitExceeded, pdu.OffPLEN, wrong)
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
