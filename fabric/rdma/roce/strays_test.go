package roce

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// TestStraysOfBusyDevice: an engine that gives a packet to another device of its address goes on with its own packets,
// however much that one has to do meanwhile. Somebody else goes on with that.
func TestStraysOfBusyDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds = 100
		p := newPair(t, pairConfig{})
		s, d := p.b, p.b.dev
		w, err := s.pd.AllocMW()
		check(t, err)
		bind := verbs.SendWR{Opcode: verbs.WRBindMW, MW: w, Bind: verbs.MWBind{
			MR: s.mr, Addr: s.mr.Addr(), Length: 8, Access: verbs.AccessRemoteRead,
		}}
		var calls atomic.Int32
		adopted := make(chan struct{})
		s.handle = func(wc *verbs.WC) { // each completion leads to another one
			n := calls.Add(1)
			if n > 1 {
				select {
				case <-adopted:
				case <-time.After(time.Second):
				}
			}
			switch {
			case n == rounds:
			case wc.Opcode == verbs.WCBindMW:
				s.post(verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: w.RKey()})
			default:
				s.post(bind)
			}
		}
		d.mu.Lock() // as if it had been posted during a turn
		check(t, s.qp.(*qp).queueSend(&bind))
		d.markReady(s.qp.(*qp))
		d.mu.Unlock()
		began := time.Now()
		d.adopt(&stray{of: d, src: addrA}, false)
		d.turnForStrays()
		if took := time.Since(began); took > 0 {
			t.Errorf("the engine calls handlers of another device for %v", took)
		}
		close(adopted)
		time.Sleep(time.Millisecond)
		if n := calls.Load(); n != rounds {
			t.Errorf("the handler was called %d times, want %d", n, rounds)
		}
	})
}

// beside makes a device that shares the address, and returns the peer by whose packets that one is reached instead.
func (c *catcher) beside() *rawPeer {
	c.t.Helper()
	net := simnet.New(1)
	net.SetDefault(simnet.Link{Latency: rawLatency})
	socket, err := net.Listen(c.dst, simnet.Config{MTU: 9000})
	check(c.t, err)
	other, err := Open(socket, Config{Engines: 2, Engine: 1})
	check(c.t, err)
	c.t.Cleanup(func() { _ = other.Close() })
	Join([]*Device{c.dev.dev, other}, func([]byte) int { return 0 })
	through := *c.rawPeer
	through.conn, err = net.Listen(c.conn.LocalAddr(), simnet.Config{MTU: 9000})
	check(c.t, err)
	return &through
}

// TestLateStrays: what may have lain in the socket of another device of the address for long is handed on behind the
// MADs that lie in either socket, also in the turn of another goroutine; and soon if there are none.
func TestLateStrays(t *testing.T) {
	for name, tc := range map[string]struct {
		strayMAD, ownMAD, turn, during, awake bool
		at                                    time.Duration
		want                                  []string
	}{
		"MAD in the own socket":             {ownMAD: true, want: []string{"MAD", "settle", "command"}},
		"MAD in the own socket, and a turn": {ownMAD: true, turn: true, want: []string{"MAD", "settle", "command"}},
		"MAD in the other socket":           {strayMAD: true, at: strayTime, want: []string{"MAD", "settle", "command"}},
		"no MAD":                            {at: strayTime, want: []string{"command"}},
		"a device that works":               {awake: true, want: []string{"command"}},
		"a device that works, and a MAD":    {awake: true, strayMAD: true, want: []string{"MAD", "settle", "command"}},
		"MAD in the own socket in a turn":   {ownMAD: true, during: true, turn: true, want: []string{"MAD", "settle", "command"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCatcher(t, pairConfig{})
				d, other := c.dev.dev, c.beside()
				time.Sleep(2 * standstill)
				if tc.awake {
					c.send(c.commands(1)...)
					c.handled("command")
				}
				if tc.turn {
					d.mu.Lock()
					d.takeTurn()
					d.mu.Unlock()
				}
				strays := c.commands(1)
				if tc.during {
					c.send(c.bye())
					c.handled()
				}
				if tc.strayMAD {
					strays = append(strays, c.bye())
				}
				other.send(strays...)
				if !tc.awake {
					c.handled()
				}
				if tc.turn {
					d.mu.Lock()
					d.finishTurn(roundsOfOthers)
					d.mu.Unlock()
					if !tc.during {
						c.handled()
					}
				}
				if tc.ownMAD && !tc.during {
					c.send(c.bye())
				}
				time.Sleep(tc.at)
				c.handled(tc.want...)
			})
		})
	}
}
