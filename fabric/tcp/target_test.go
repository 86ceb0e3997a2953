package tcp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// identify is an Identify Controller, with the data to come as the SGL says.
func identify(cid uint16) nvme.Command {
	var cmd nvme.Command
	cmd.SetIdentify(nvme.CNSController, 0, 0, 0)
	cmd.SetCID(cid)
	cmd.SGL1().SetBlock(nvme.SGLTransport, 0, 4096)
	return cmd
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
	for n := range stream {
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

// TestTargetTimeout leaves connections without ICReq, and without Connect, one of which sends other commands all the time:
// they end when the engine says, however long that is.
func TestTargetTimeout(t *testing.T) {
	virtually(t, func(t *testing.T, n socket.Network) {
		const limit = time.Minute
		tt := newLimitedTarget(t, TargetConfig{BusyPoll: NoBusyPoll, Network: n}, newTestVolume(t), target.Limits{ConnectTimeout: limit})
		began := time.Now()
		silent, halfway, busy := rawHost(t, tt), rawHost(t, tt), rawHost(t, tt)
		halfway.initialize(pdu.ICReq{})
		busy.initialize(pdu.ICReq{})
		for sent, refused := busy.enableCapsule(), make([]byte, pdu.CapsuleRespSize); ; time.Sleep(10 * time.Millisecond) {
			if _, err := busy.Write(sent); err != nil {
				break
			}
			if _, err := io.ReadFull(busy, refused); err != nil {
				break
			}
		}
		silent.closed()
		halfway.closed()
		if took := time.Since(began); took < limit || took > limit+time.Second {
			t.Errorf("the connections ended after %v", took)
		}
		for range 3 {
			if err := <-tt.errs; !errors.Is(err, target.ErrConnectTimeout) {
				t.Error(err)
			}
		}
	})
}

// TestTargetTimeoutEnds checks that the limit doesn't apply once Connect has succeeded.
func TestTargetTimeoutEnds(t *testing.T) {
	virtually(t, func(t *testing.T, n socket.Network) {
		const limit = 10 * time.Second
		tt := newLimitedTarget(t, TargetConfig{BusyPoll: NoBusyPoll, Network: n}, newTestVolume(t), target.Limits{ConnectTimeout: limit})
		p := rawHost(t, tt)
		p.initialize(pdu.ICReq{})
		p.connect()
		time.Sleep(2 * limit) // nothing may happen meanwhile
		p.enable()
	})
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
	engine, err := target.New(target.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(t.Context())
	for _, c := range []TargetConfig{{QueueDepth: 1}, {QueueDepth: 5000}, {InCapsule: 17}, {InCapsule: 2 << 20},
		{MaxTransfer: 5000}, {MaxTransfer: 2048}, {MaxTransfer: 32 << 20}, {MaxH2CData: 4095}, {MaxH2CData: 4098}, {MaxH2CData: 1 << 32}, {MaxH2CData: 1024},
		{Memory: 4096}, {PeerMemory: -1}, {PeerMemory: defaultMemory + 1}, {MaxConns: -1}, {MaxPeerConns: -1}, {DataTimeout: -1}} {
		if _, err := ListenTarget(anyPort, engine, c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []TargetConfig{{}, {QueueDepth: 2}, {QueueDepth: 4096}, {InCapsule: 1 << 20}, {MaxTransfer: 4096}, {MaxTransfer: 16 << 20},
		{MaxH2CData: 4096}, {MaxH2CData: 16 << 20}, {Memory: defaultMaxTransfer, PeerMemory: defaultMaxTransfer}, {MaxConns: 1, MaxPeerConns: 1},
		{DataTimeout: 1}} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := ListenTarget(anyPort, nil, TargetConfig{}); !errors.Is(err, ErrConfig) {
		t.Errorf("without a target: %v", err)
	}
	l, err := ListenTarget(anyPort, engine, TargetConfig{InCapsule: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ListenTarget(l.Addr(), engine, TargetConfig{}); !errors.Is(err, syscall.EADDRINUSE) {
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

// TestDisconnectEnds: nothing follows the response to Disconnect, even if the host has sent another command.
func TestDisconnectEnds(t *testing.T) {
	virtually(t, func(t *testing.T, n socket.Network) {
		tt := newTestTarget(t, TargetConfig{BusyPoll: NoBusyPoll, Network: n})
		_, p := rawIO(t, tt, netip.Addr{}, 8)
		capsule := func(cid uint16, set func(c *nvme.Command)) []byte {
			var cmd nvme.Command
			set(&cmd)
			cmd.SetCID(cid)
			return p.capsule(cmd, nil)
		}
		late := capsule(2, func(c *nvme.Command) { c.SetFlush(1) })
		p.send(append(capsule(1, (*nvme.Command).SetDisconnect), late...))
		if cqe := p.response(); cqe.CID() != 1 || !cqe.Status().OK() {
			t.Errorf("command %d: %v", cqe.CID(), cqe.Status())
		}
		p.closed()
	})
}
