package roce

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// catcher records the order in which a device hands on what has arrived.
type catcher struct {
	*rawPeer
	mu  sync.Mutex
	log []string
	psn int
}

func newCatcher(t *testing.T, cfg pairConfig) *catcher {
	c := &catcher{rawPeer: newRaw(t, cfg), psn: rawPSN}
	c.dev.dev.HandleMADs(func(netip.Addr, []byte) { c.note("MAD") })
	c.dev.dev.SettleMADs(func() { c.note("settle") })
	c.dev.handle = func(*verbs.WC) { c.note("command") }
	return c
}

func (c *catcher) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.log) == 0 || c.log[len(c.log)-1] != what {
		c.log = append(c.log, what)
	}
}

// commands returns n SENDs, for which receives are posted. None asks for an answer.
func (c *catcher) commands(n int) (list []*wire.Packet) {
	for range n {
		c.dev.recv(0, c.dev.sge(0, 100)...)
		p := c.packet(wire.RCSendOnly, c.psn, 10)
		p.AckReq = false
		list = append(list, p)
		c.psn++
	}
	return list
}

// bye returns a management datagram.
func (c *catcher) bye() *wire.Packet {
	return &wire.Packet{
		BTH:  wire.BTH{Opcode: wire.UDSendOnly, MigReq: true, PKey: wire.DefaultPKey, DestQP: wire.QP1},
		DETH: wire.DETH{QKey: wire.QP1QKey, SrcQP: wire.QP1}, Payload: make([]byte, madSize),
	}
}

// handled checks the log, and empties it.
func (c *catcher) handled(want ...string) {
	c.t.Helper()
	time.Sleep(10 * rawLatency)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.log, want) {
		c.t.Errorf("handled %v, want %v", c.log, want)
	}
	c.log = nil
}

// TestCatchUp: a device that may have stood still tells connection management of the MADs that lie behind commands,
// however many commands there are, and waits until those have taken effect, before it hands on the first command.
func TestCatchUp(t *testing.T) {
	many := 4 * len(new(Device).rx.received)
	synctest.Test(t, func(t *testing.T) {
		c := newCatcher(t, pairConfig{})
		c.send(c.commands(1)...)
		c.handled("command")
		time.Sleep(standstill / 2)
		c.send(append(c.commands(1), c.bye())...)
		c.handled("MAD", "command")
		time.Sleep(2 * standstill)
		c.send(append(c.commands(many), c.bye())...)
		c.handled("MAD", "settle", "command")
		time.Sleep(2 * standstill)
		c.send(c.bye())
		c.handled("MAD") // there is no command to hold back
		time.Sleep(2 * standstill)
		c.send(c.commands(1)...)
		c.handled("command")
	})
}

// TestCatchUpBehindTimer: if the program stood still the timer is late too, and its turn isn't used to hand on what the
// engine receives meanwhile.
func TestCatchUpBehindTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatcher(t, pairConfig{})
		d := c.dev.dev
		time.Sleep(2 * standstill)
		d.mu.Lock()
		if !d.takeTurn() {
			t.Fatal("an idle device has a turn")
		}
		d.mu.Unlock()
		c.send(append(c.commands(1), c.bye())...)
		c.handled()
		d.mu.Lock()
		d.finishTurn(roundsOfOthers) // as onTimer does
		d.mu.Unlock()
		c.handled("MAD", "settle", "command")
	})
}

// hesitant is a socket whose Recv at first returns nothing although something is there, as a socket may do when tasks
// are offered.
type hesitant struct {
	udp.Conn
	rx   [udp.RecvBatch]udp.Received
	held int
}

func (h *hesitant) Recv(rx []udp.Received) (n int, err error) {
	if h.held > 0 {
		return h.TryRecv(rx)
	}
	h.held, err = h.Conn.Recv(h.rx[:])
	return 0, err
}

func (h *hesitant) TryRecv(rx []udp.Received) (n int, err error) {
	if h.held == 0 {
		return h.Conn.TryRecv(rx)
	}
	n, h.held = copy(rx, h.rx[:h.held]), 0
	return n, nil
}

// TestCatchUpAfterNothing: the first turn after the engine stood still may be for something other than packets.
func TestCatchUpAfterNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatcher(t, pairConfig{wrap: func(c udp.Conn) udp.Conn { return &hesitant{Conn: c} }})
		time.Sleep(2 * standstill)
		c.send(append(c.commands(1), c.bye())...)
		c.handled("MAD", "settle", "command")
	})
}

// TestCatchUpAmidTurn: a device may stand still after it has received commands and before it has handed them on.
func TestCatchUpAmidTurn(t *testing.T) {
	c := newCatcher(t, pairConfig{})
	handled := func(want ...string) {
		t.Helper()
		if !soon.Until(func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.log) > 0 && c.log[len(c.log)-1] == "command"
		}) {
			t.Fatal("nobody is given the command")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.Equal(c.log, want) {
			t.Errorf("handled %v, want %v", c.log, want)
		}
		c.log = nil
	}
	c.send(c.commands(1)...)
	handled("command")
	all := append(c.commands(1), c.bye())
	d := c.dev.dev
	d.mu.Lock()
	c.send(all...)
	time.Sleep(2 * standstill)
	d.mu.Unlock()
	handled("MAD", "settle", "command")
}
