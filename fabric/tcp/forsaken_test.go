package tcp

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// standing is a volume that simulates a standstill of the program in its first write.
type standing struct {
	blockdev.Volume
	still  atomic.Pointer[func()]
	writes atomic.Int32
}

func (v *standing) Submit(r *blockdev.Request) {
	if r.Op == blockdev.OpWrite && v.writes.Add(1) == 1 {
		(*v.still.Load())()
		time.Sleep(standstill + 10*time.Millisecond)
	}
	v.Volume.Submit(r)
}

// TestForsaken: if a host gives up its connection while the target stands still, no command that it sent before is
// executed afterwards, however much of it the target has already received, and whether or not the target's socket has
// already reported the end.
func TestForsaken(t *testing.T) {
	const size = block
	data := make([]byte, size)
	inline := func(p *raw, cid uint16) []byte {
		cmd := ioCommand(nvme.OpWrite, int(cid)*size, size)
		cmd.SetCID(cid)
		cmd.SGL1().SetBlock(nvme.SGLInCapsule, 0, size)
		return p.capsule(cmd, data)
	}
	reset := func(p *raw) {
		_ = p.SetLinger(0)
		_ = p.Close()
	}
	for name, c := range map[string]struct {
		before func(p *raw, ttag uint16) []byte // what is sent after the first write
		still  func(p *raw, conn *targetConn)   // while the target stands still
		writes int32
	}{
		"nobody": {
			before: func(p *raw, _ uint16) []byte { return slices.Concat(inline(p, 2), inline(p, 3)) },
			still:  func(*raw, *targetConn) {},
			writes: 3,
		},
		"received": {
			before: func(p *raw, _ uint16) []byte { return slices.Concat(inline(p, 2), inline(p, 3)) },
			still:  func(p *raw, _ *targetConn) { reset(p) },
			writes: 1,
		},
		"in the socket": {
			still: func(p *raw, _ *targetConn) {
				p.send(inline(p, 2))
				reset(p)
			},
			writes: 1,
		},
		"closed": {
			still: func(p *raw, _ *targetConn) {
				p.send(inline(p, 2))
				_ = p.CloseWrite()
			},
			writes: 1,
		},
		"a response met the reset": {
			still: func(p *raw, conn *targetConn) {
				p.send(inline(p, 2))
				reset(p)
				for err := error(nil); err == nil; {
					_, err = conn.conn.(*socket.TCP).Write([]byte{0})
				}
			},
			writes: 1,
		},
		"data that was asked for": {
			before: func(p *raw, ttag uint16) []byte {
				return p.data(pdu.Data{Header: pdu.Header{Type: pdu.TypeH2CData, Flags: pdu.FlagLast}, CCCID: 7, TTAG: ttag}, data)
			},
			still:  func(p *raw, _ *targetConn) { reset(p) },
			writes: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			memory := newTestVolume(t)
			vol := &standing{Volume: memory}
			tt := newTestTargetOn(t, TargetConfig{}, vol)
			_, p := rawIO(t, tt, another, 8)
			cmd := ioCommand(nvme.OpWrite, 7*size, size)
			cmd.SetCID(7)
			cmd.SGL1().SetBlock(nvme.SGLTransport, 0, size)
			p.send(p.capsule(cmd, nil))
			r2t, err := pdu.ParseR2T(p.expect(pdu.TypeR2T))
			if err != nil {
				t.Fatal(err)
			}
			conn := connOf(t, tt, p)
			still := func() { c.still(p, conn) }
			vol.still.Store(&still)
			first := inline(p, 1)
			if c.before != nil {
				first = append(first, c.before(p, r2t.TTAG)...)
			}
			p.send(first)
			if c.writes > 1 {
				for range c.writes {
					if cqe := p.response(); !cqe.Status().OK() {
						t.Errorf("write: %v", cqe.Status())
					}
				}
				return
			}
			waitFor(t, "the connection ends", func() bool { return tt.Counters().Connections.Load() == 1 })
			if n := vol.writes.Load(); n != c.writes {
				t.Errorf("%d writes were executed, want %d", n, c.writes)
			}
		})
	}
}
