package host

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// slowAdmin makes the target never answer Format NVM, and honour the Aborts of it if abortable is set.
func slowAdmin(abortable bool) func(*fakeQueue, *Request, *nvme.Completion) verdict {
	return func(q *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		switch {
		case q.attr.QID != 0:
		case r.Cmd.Opcode() == nvme.OpFormat:
			return never
		case r.Cmd.Opcode() == nvme.OpAbort && abortable:
			var late nvme.Completion
			late.SetCID(r.Cmd.AbortCID())
			late.SetStatus(nvme.StatusAbortRequested)
			q.answer(late)
		}
		return usual
	}
}

// startSlow sends n slow admin commands, far more than the queue takes at once, and returns where their ends come.
func startSlow(ctx context.Context, c *Controller, n int) chan error {
	ended := make(chan error, n)
	for range n {
		go func() {
			r := &Request{}
			r.Cmd[0] = byte(nvme.OpFormat)
			ended <- c.Admin().Do(ctx, r)
		}()
	}
	synctest.Wait()
	return ended
}

// TestKeepAliveOfBusyQueue: more slow admin commands than the queue takes don't keep the controller from being kept
// alive, and from being shut down.
func TestKeepAliveOfBusyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.hook = slowAdmin(false)
		c := connect(t, f) // KATO 5 s
		const slow = 100
		ended := startSlow(t.Context(), c, slow)
		time.Sleep(51 * time.Second) // a minute would make them time out
		if n := f.commands("Keep Alive"); n < 20 || c.Err() != nil {
			t.Errorf("%d keep alives in 51 s; %v", n, c.Err())
		}
		closeController(t, c)
		for range slow {
			if err := <-ended; !errors.Is(err, ErrClosed) {
				t.Fatal(err)
			}
		}
	})
}

// TestAbortOfBusyQueue: commands that fill the admin queue can be aborted.
func TestAbortOfBusyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.hook = slowAdmin(true)
		c := connect(t, f)
		const slow = 100
		ctx, cancel := context.WithCancel(t.Context())
		ended := startSlow(ctx, c, slow)
		at := time.Now()
		cancel()
		for range slow {
			if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, ErrLost) {
				t.Fatal(err)
			}
		}
		if took := time.Since(at); took != 0 || c.Err() != nil {
			t.Errorf("they ended after %v; %v", took, c.Err())
		}
		closeController(t, c)
	})
}

// TestReservedEntries: of a queue of any size, ordinary requests leave what is reserved, urgent ones use all of it,
// and the last of either that waits gets its turn. An I/O queue reserves nothing.
func TestReservedEntries(t *testing.T) {
	for _, c := range []struct{ size, ordinary int }{{2, 1}, {3, 2}, {5, 2}, {8, 2}, {10, 3}, {32, 25}} {
		q, m := manual(c.size)
		q.attr.QID = 0
		q.resize(c.size)
		depth, n := c.size-1, 2*c.size
		var order []int // the ordinary ones are numbered from 0, the urgent ones from n
		ordinary := requests(n, func(i int, _ *Request) { order = append(order, i) })
		urgent := requests(n, func(i int, _ *Request) { order = append(order, n+i) })
		q.Submit(ordinary)
		if len(m.sent) != c.ordinary {
			t.Errorf("size %d: %d ordinary commands sent, want %d", c.size, len(m.sent), c.ordinary)
		}
		for _, r := range urgent {
			q.submitUrgent(r)
		}
		if len(m.sent) != depth {
			t.Errorf("size %d: %d sent, want %d", c.size, len(m.sent), depth)
		}
		for i := 0; i < len(m.cids); i++ {
			if !m.answer(m.cids[i], 0) {
				t.Fatalf("size %d: the answer to command %d is refused", c.size, i)
			}
		}
		if left := depth - len(q.free); len(order) != 2*n || left != 0 {
			t.Fatalf("size %d: %d of %d ended, %d outstanding", c.size, len(order), 2*n, left)
		}
		next := [2]int{0, n}
		for place, i := range order {
			kind := i / n
			if i != next[kind] {
				t.Fatalf("size %d: %v", c.size, order)
			}
			next[kind]++
			if kind == 0 && i >= c.ordinary && next[1] < 2*n {
				t.Fatalf("size %d: ordinary request %d ended in place %d, before urgent ones that waited", c.size, i, place)
			}
		}
	}
}
