package tcp

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

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

// TestTargetMoreCommandsThanSlots: of more commands in one batch than there are slots all are answered, as a host can't
// know which slots the target has freed. The answers still leave many at a time.
func TestTargetMoreCommandsThanSlots(t *testing.T) {
	virtually(t, func(t *testing.T, n socket.Network) {
		const depth, rounds = 32, 3
		tt := newTestTarget(t, TargetConfig{QueueDepth: depth, BusyPoll: NoBusyPoll, Network: n})
		p := rawHost(t, tt)
		p.initialize(pdu.ICReq{})
		p.connect()
		before := tt.Counters().Out.Calls.Load()
		var batch []byte
		for range rounds * depth {
			batch = append(batch, p.enableCapsule()...)
		}
		p.send(batch)
		for range rounds * depth {
			p.response()
		}
		if calls := tt.Counters().Out.Calls.Load() - before; calls > 2*rounds {
			t.Errorf("%d commands are answered in %d calls, want one for each %d, and a few more", rounds*depth, calls, depth)
		}
	})
}

// TestTargetEndsSlowReader: a connection whose reader waits for a slot, as its host reads no answers, ends at once when the
// engine wants that.
func TestTargetEndsSlowReader(t *testing.T) {
	virtually(t, func(t *testing.T, n socket.Network) {
		tt := newTestTarget(t, TargetConfig{QueueDepth: 32, BusyPoll: NoBusyPoll, Network: n})
		slow := rawHost(t, tt)
		slow.initialize(pdu.ICReq{})
		slow.connect()
		slow.enable()
		go func() {
			for i := range 3000 {
				if _, err := slow.Write(slow.capsule(identify(uint16(i)), nil)); err != nil {
					return
				}
			}
		}()
		time.Sleep(time.Second)
		c := connOf(t, tt, slow)
		c.mu.Lock()
		busy := c.busy
		c.mu.Unlock()
		if busy != tt.cfg.QueueDepth || c.responding.Load() == 0 {
			t.Fatalf("%d slots are in use, %d for answers", busy, c.responding.Load())
		}
		why := errors.New("enough")
		began := time.Now()
		c.Disconnect(why)
		synctest.Wait()
		if n := tt.Counters().Connections.Load(); n != 0 || time.Since(began) != 0 {
			t.Errorf("%d connections are left", n)
		}
		if err := <-tt.errs; !errors.Is(err, why) {
			t.Error(err)
		}
	})
}
