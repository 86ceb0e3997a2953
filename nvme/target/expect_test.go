package target

import (
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// watched records what it is told to prefetch.
type watched struct {
	blockdev.Memory
	ranges []fetched
}

type fetched struct {
	op             blockdev.Op
	offset, length int64
}

func (w *watched) Prefetch(op blockdev.Op, offset, length int64) {
	w.ranges = append(w.ranges, fetched{op, offset, length})
}

// TestExpect: reads and writes of a connected host are announced to their volume, with their ranges, and nothing else
// is.
func TestExpect(t *testing.T) {
	v, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20, BlockSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{Memory: v.(blockdev.Memory)}
	tg := newTarget(t, w, newTestVolume(1<<20, 512))
	c := dial(t, tg)
	var read nvme.Command
	read.SetIO(nvme.OpRead, 1, 16, 8, 0)
	c.q.Expect(&read) // nobody is connected
	c.hangUp(nil)
	s := connect(t, tg, testNQN)
	defer s.close()
	s.admin.q.Expect(&read)

	s.io.q.Expect(&read)
	for _, other := range []struct {
		op   nvme.Opcode
		nsid uint32
	}{{nvme.OpWrite, 1}, {nvme.OpCompare, 1}, {nvme.OpFlush, 1}, {nvme.OpRead, 2}, {nvme.OpWrite, 3}, {nvme.OpRead, 0}} {
		var cmd nvme.Command
		cmd.SetIO(other.op, other.nsid, 16, 8, 0)
		s.io.q.Expect(&cmd)
	}
	read.SetIO(nvme.OpRead, 1, 1<<40, 1, 0) // beyond the end: for the volume to find out
	s.io.q.Expect(&read)
	if want := []fetched{
		{blockdev.OpRead, 16 * 512, 8 * 512}, {blockdev.OpWrite, 16 * 512, 8 * 512}, {blockdev.OpRead, 512 << 40, 512},
	}; !slices.Equal(w.ranges, want) {
		t.Errorf("prefetched %v, want %v", w.ranges, want)
	}
}

// TestExpectDuringConnect: a transport may announce commands while Connect, which had to wait for memory or data, is
// executed by another goroutine.
func TestExpectDuringConnect(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	defer s.close()
	c := dial(t, tg, func(c *fakeConn) { c.pullLate = true })
	defer c.hangUp(nil)
	var read nvme.Command
	read.SetIO(nvme.OpRead, 1, 0, 8, 0)
	fr := c.start(connectCommand(2, 31, 0), connectData(t, s.cntlid, testNQN))
	for connecting := true; connecting; connecting = !fr.answered() {
		c.q.Expect(&read)
	}
	if st := fr.wait().Status(); st != nvme.StatusSuccess {
		t.Errorf("Connect: status %#x", uint16(st))
	}
}
