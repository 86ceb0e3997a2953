package tcp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestAnswersWhileReaderWaits: a host sends more commands than its queue has entries, and the reader waits for a slot.
// A row of answers that ends meanwhile is sent nevertheless, and the reader goes on.
func TestAnswersWhileReaderWaits(t *testing.T) {
	virtually(t, func(t *testing.T, n socket.Network) {
		const depth = 32
		memory := newTestVolume(t)
		v := &holding{memory, make(chan *blockdev.Request, depth)}
		defer func() {
			for len(v.held) > 0 {
				memory.Submit(<-v.held)
			}
		}()
		tt := newTestTargetOn(t, TargetConfig{QueueDepth: depth, BusyPoll: NoBusyPoll, Network: n}, v)
		_, p := rawIO(t, tt, another, depth)
		write := func(cid uint16) {
			cmd := ioCommand(nvme.OpWrite, 0, block)
			cmd.SetCID(cid)
			cmd.SGL1().SetBlock(nvme.SGLInCapsule, 0, block)
			p.send(p.capsule(cmd, make([]byte, block)))
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		for cid := range uint16(depth) {
			write(cid)
		}
		var row blockdev.Row
		(<-v.held).EndIn(&row, nil)
		write(depth)
		if got := len(v.held); got != depth-1 {
			t.Errorf("the volume has %d commands, want %d: all but the last", got, depth-1)
		}
		row.End()
		if cqe := p.response(); cqe.CID() != 0 {
			t.Errorf("command %d is answered first", cqe.CID())
		}
		synctest.Wait()
		if got := len(v.held); got != depth {
			t.Errorf("the volume has %d commands, want %d", got, depth)
		}
	})
}
