package tcp

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// torrent is a connection whose peer sends without a pause, so that Recv never returns EAGAIN.
type torrent struct {
	socket.Conn
	until    time.Time
	deadline time.Time
}

func (*torrent) CloseWrite() error { return nil }

func (c *torrent) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *torrent) WhenReadable(f func() bool) error {
	for time.Now().Before(c.deadline) {
		if f() {
			return nil
		}
	}
	return os.ErrDeadlineExceeded
}

func (c *torrent) Recv([]unix.Iovec, bool) (n, left int, errno unix.Errno) {
	if time.Now().After(c.until) {
		return 0, 0, 0
	}
	time.Sleep(time.Millisecond)
	return 1, 1, 0
}

// TestLingerIsLimited: a peer that is told of its fault, and goes on sending without a pause, doesn't keep its connection
// for longer than one that is silent.
func TestLingerIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		linger(&torrent{until: began.Add(time.Hour)})
		if took := time.Since(began); took > lingerTime {
			t.Errorf("it took %v, want %v", took, lingerTime)
		}
	})
}

// TestEndAwaitsNoReader: a host that takes nothing of the data that it asked for has little time for it once its
// connection ends, because of a fault of its own or because the listener is closed.
func TestEndAwaitsNoReader(t *testing.T) {
	for name, end := range map[string]func(tt *testTarget, p *raw){
		"fault": func(_ *testTarget, p *raw) { p.send(wrongHeader(0x55, 0, 24, 0, 24)) },
		"close": func(tt *testTarget, _ *raw) { tt.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T, n socket.Network) {
				const size, depth = 128 << 10, 32
				tt := newTestTarget(t, TargetConfig{BusyPoll: NoBusyPoll, Network: n, MaxTransfer: size})
				_, p := rawIO(t, tt, netip.Addr{}, depth)
				c := connOf(t, tt, p)
				cmd := ioCommand(nvme.OpRead, 0, size)
				cmd.SGL1().SetBlock(nvme.SGLTransport, 0, size)
				for cid := range uint16(depth - 1) {
					cmd.SetCID(cid)
					p.send(p.capsule(cmd, nil))
				}
				time.Sleep(lingerTime) // until nothing moves any more
				began := time.Now()
				end(tt, p)
				for lives := true; lives && time.Since(began) < sendTimeout; {
					time.Sleep(lingerTime / 10)
					tt.mu.Lock()
					_, lives = tt.conns[c]
					tt.mu.Unlock()
				}
				if took := time.Since(began); took < lingerTime || took > 3*lingerTime {
					t.Errorf("it took %v, want %v for the data, and perhaps as long for what says why", took, lingerTime)
				}
			})
		})
	}
}

// TestOffenderIsNotReset: a peer that has sent much behind its offence gets the terminate request and the end of the
// connection, in place of a reset, which may overtake the request.
func TestOffenderIsNotReset(t *testing.T) {
	const behind = 4 * chunkSize
	told := func(t *testing.T, p *raw, typ pdu.Type) {
		t.Helper()
		p.expect(typ)
		time.Sleep(lingerTime / 2) // a reset would be here
		if _, err := p.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("behind the terminate request: %v", err)
		}
		_ = p.Close()
	}
	t.Run("host", func(t *testing.T) {
		virtually(t, func(t *testing.T, n socket.Network) {
			p := rawHost(t, newTestTarget(t, TargetConfig{BusyPoll: NoBusyPoll, Network: n}))
			p.initialize(pdu.ICReq{})
			p.connect()
			p.send(append(wrongHeader(0x55, 0, 24, 0, 24), make([]byte, behind)...))
			told(t, p, pdu.TypeC2HTermReq)
		})
	})
	t.Run("controller", func(t *testing.T) {
		virtually(t, func(t *testing.T, n socket.Network) {
			d := dialRaw(t, HostConfig{BusyPoll: NoBusyPoll, Network: n}, goodResp)
			_, done, _ := d.start(ioCommand(nvme.OpRead, 0, block), make([]byte, block))
			d.ctrl.send(append(wrongHeader(0x55, 0, 24, 0, 24), make([]byte, behind)...))
			told(t, d.ctrl, pdu.TypeH2CTermReq)
			d.wait(done)
			<-d.gone
		})
	})
}
