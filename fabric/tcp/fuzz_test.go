package tcp

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// fuzzPatience is how long a connection may take to end that nobody keeps open.
const fuzzPatience = 20 * time.Second

// FuzzTarget sends a target whatever a host may: a stream after as much of a good beginning as how
// says. Nothing panics, and the connection ends when the stream does, with all that it held.
func FuzzTarget(f *testing.F) {
	tt := newTestTarget(f, TargetConfig{QueueDepth: 32, MaxTransfer: 64 << 10, MaxConns: 64, MaxPeerConns: 64})
	p := &raw{t: f}
	read, write := ioCommand(nvme.OpRead, 0, 4096), ioCommand(nvme.OpWrite, 0, 4096)
	read.SGL1().SetBlock(nvme.SGLTransport, 0, 4096)
	write.SGL1().SetBlock(nvme.SGLInCapsule, 0, 4096)
	h2c := p.data(Data{Header: Header{Type: TypeH2CData, Flags: FlagLast}, CCCID: 1}, make([]byte, nvme.ConnectDataSize))
	f.Add(uint8(0), ICReq{}.Append(nil))
	f.Add(uint8(1), append(p.capsule(pulling(1), nil), h2c...))
	f.Add(uint8(2), append(p.capsule(identify(1), nil), p.capsule(identify(2), nil)...))
	f.Add(uint8(2), append(p.capsule(read, nil), p.capsule(write, make([]byte, 4096))...))
	f.Add(uint8(1), TermReq{Type: TypeH2CTermReq, FES: FESInvalidHeader, Offence: make([]byte, 24)}.Append(nil))
	f.Add(uint8(6), testStream(DigestHeader | DigestData)[:1000])
	f.Fuzz(func(t *testing.T, how uint8, stream []byte) {
		p := rawHost(t, tt)
		_ = p.SetDeadline(time.Now().Add(fuzzPatience))
		if how&3 > 0 {
			p.initialize(ICReq{Digests: Digests(how >> 2 & 3)})
		}
		if how&3 > 1 {
			p.connect(32, 0)
			p.enable()
		}
		_, _ = p.Write(stream) // the target may have ended the connection before all is there
		_ = p.CloseWrite()
		if _, err := io.Copy(io.Discard, p); isTimeout(err) {
			t.Fatalf("the connection doesn't end: %v", err)
		}
		_ = p.Close()
	})
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// FuzzHost answers a host with whatever a target may send while commands are outstanding. Nothing
// panics, nothing is written but into their data, each command ends once, and so does the
// connection.
func FuzzHost(f *testing.F) {
	p := &raw{t: f}
	f.Add(uint8(0), p.resp(63, nvme.StatusSuccess))
	f.Add(uint8(0), append(p.data(Data{Header: Header{Type: TypeC2HData, Flags: FlagLast}, CCCID: 63}, make([]byte, 4096)), p.resp(63, 0)...))
	f.Add(uint8(0), append(p.r2t(R2T{CCCID: 62, TTAG: 3, R2TL: 16384}), p.resp(62, 0)...))
	f.Add(uint8(0), p.data(Data{Header: Header{Type: TypeC2HData, Flags: FlagLast | FlagSuccess}, CCCID: 63}, make([]byte, 4096)))
	f.Add(uint8(3), TermReq{Type: TypeC2HTermReq, FES: FESInvalidHeader, Offence: make([]byte, 24)}.Append(nil))
	f.Fuzz(func(t *testing.T, digests uint8, stream []byte) {
		d := dialRaw(t, HostConfig{HeaderDigest: digests&1 != 0, DataDigest: digests&2 != 0}, goodResp)
		_ = d.ctrl.SetDeadline(time.Now().Add(fuzzPatience))
		const guard = 64
		var ended atomic.Int32
		var all []*host.Request
		var bufs [][]byte
		for i, n := range []int{4096, 16384} { // one is read, one written by R2T
			b := make([]byte, guard+n+guard)
			bufs = append(bufs, b)
			op := []nvme.Opcode{nvme.OpRead, nvme.OpWrite}[i]
			all = append(all, &host.Request{Cmd: ioCommand(op, 0, n), Data: b[guard : guard+n : guard+n], Done: func(*host.Request) { ended.Add(1) }})
		}
		d.submit(all...)
		go func() { _, _ = io.Copy(io.Discard, d.ctrl) }()
		_, _ = d.ctrl.Write(stream)
		_ = d.ctrl.CloseWrite()
		select {
		case <-d.gone:
		case <-time.After(fuzzPatience):
			t.Fatal("the connection doesn't end")
		}
		if n := ended.Load(); n != int32(len(all)) {
			t.Errorf("%d commands ended, want %d", n, len(all))
		}
		for _, b := range bufs {
			for i := range guard {
				if b[i] != 0 || b[len(b)-1-i] != 0 {
					t.Fatal("written outside of a command's data")
				}
			}
		}
		_ = d.ctrl.Close()
		_ = d.tr.Close()
	})
}
