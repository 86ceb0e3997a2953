package tcp

import (
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
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
