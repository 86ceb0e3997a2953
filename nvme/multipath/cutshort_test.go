package multipath

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ncw/directio"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// crashOnRead makes the target of each link crash on a read of block 0, and come back at once, for as long as crash
// says so.
func (r *rig) crashOnRead(crash func() bool) {
	for _, l := range r.links {
		l.set(func(l *link) {
			l.hold = func(c *nvme.Command) bool {
				if c.Opcode() != nvme.OpRead || c.SLBA() != 0 || !crash() {
					return false
				}
				l.cut()
				l.restore(r.tgt)
				return true
			}
		})
	}
}

// TestCrashingRequest: a request on which every target crashes is sent again five times for each path, and then fails,
// while others go on.
func TestCrashingRequest(t *testing.T) {
	for links := 1; links <= 2; links++ {
		synctest.Test(t, func(t *testing.T) {
			r, times := newRig(t, links), 1+5*links
			s, n := r.connect()
			defer r.close(s)
			crashes := 0
			r.crashOnRead(func() bool { crashes++; return true })
			for round := 1; round <= 2; round++ { // what the previous request did doesn't count
				at := time.Now()
				_, err := n.ReadAt(t.Context(), make([]byte, 4096), 0)
				var cut *CutShortError
				if !errors.As(err, &cut) || cut.Times != times || cut.Opcode != nvme.OpRead || cut.NSID != 1 || cut.SubNQN != testNQN {
					t.Fatalf("%d paths: %v", links, err)
				}
				if !errors.Is(err, nvme.StatusHostPathError) || !errors.Is(err, host.ErrLost) || !errors.Is(err, errCut) || errors.Is(err, ErrNoPath) {
					t.Errorf("it doesn't match what it should: %v", err)
				}
				if text := err.Error(); !strings.Contains(text, fmt.Sprintf("lost each of the %d times that Read of block 0 was sent", times)) {
					t.Errorf("it says %q", text)
				}
				if crashes != times*round {
					t.Errorf("%d crashes after %d reads", crashes, round)
				}
				if took := time.Since(at); took > time.Duration(times)*firstPause {
					t.Errorf("after %v", took)
				}
				mustWrite(t, n, byte(round), 8192)
				mustRead(t, n, byte(round), 8192)
			}
			if got := s.Counters().Failed.Load(); got != 2 {
				t.Errorf("%d requests failed, want 2", got)
			}
		})
	}
}

// TestCrashesEnd: a request whose path was lost less often doesn't fail.
func TestCrashesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		defer r.close(s)
		mustWrite(t, n, 3, 0)
		crashes := 0
		r.crashOnRead(func() bool { crashes++; return crashes%6 != 0 })
		for range 3 {
			mustRead(t, n, 3, 0)
		}
		if crashes != 18 {
			t.Errorf("read %d times, want 18", crashes)
		}
	})
}

// TestManyPathsEnd: the target behind many paths ends again and again, and with it the connection of each path, one
// after the other. A request that each of them cut short waits for the first that comes back.
func TestManyPathsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2*maxCuts)
		s, n := r.connect()
		defer r.close(s)
		mustWrite(t, n, 3, 0)
		ended, times := 0, maxCuts*len(r.links)
		for _, l := range r.links {
			l.set(func(l *link) {
				l.hold = func(c *nvme.Command) bool {
					if c.Opcode() != nvme.OpRead || ended == times {
						return false
					}
					ended++
					l.cut()
					time.AfterFunc(time.Second, func() { l.restore(r.tgt) })
					return true
				}
			})
		}
		mustRead(t, n, 3, 0)
		if ended != times {
			t.Errorf("cut short %d times, want %d", ended, times)
		}
	})
}

// TestFusedCutShort: a Compare and Write that was cut short by the loss of its path isn't sent again, neither whole
// nor by halves: it may have been executed, and would then find its own data.
func TestFusedCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		defer r.close(s)
		var fused atomic.Int32
		for _, l := range r.links {
			l.set(func(l *link) {
				l.hold = func(c *nvme.Command) bool {
					if c.Fuse() == nvme.FuseNone {
						return false
					}
					fused.Add(1)
					return true
				}
			})
		}
		ended := make(chan error, 2)
		for _, half := range []struct {
			op   nvme.Opcode
			part nvme.Fuse
		}{{nvme.OpCompare, nvme.FuseFirst}, {nvme.OpWrite, nvme.FuseSecond}} {
			q := &host.Request{Data: directio.AlignedBlock(4096), Done: func(q *host.Request) { ended <- q.Check() }}
			q.Cmd.SetIO(half.op, 1, 0, 1, 0)
			q.Cmd.SetFuse(half.part)
			n.Lane(0).SubmitOne(q)
		}
		synctest.Wait()
		for _, l := range r.links {
			l.cut()
			l.restore(r.tgt)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, host.ErrLost) || !errors.Is(err, nvme.StatusHostPathError) {
				t.Errorf("it ended with %v", err)
			}
		}
		time.Sleep(time.Minute)
		if got := fused.Load(); got != 2 {
			t.Errorf("%d halves were sent, want 2", got)
		}
		mustRead(t, n, 0, 0)
	})
}
