package target

import (
	"slices"
	"sync"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestAbortWaiting: commands that wait to have a namespace alone, and those behind them, can be aborted; commands that
// waited behind an aborted one go on.
func TestAbortWaiting(t *testing.T) {
	const first, second, behind = 11, 12, 13
	withCID := func(c nvme.Command, cid uint16) nvme.Command { c.SetCID(cid); return c }
	b := make([]byte, 512)
	for name, tc := range map[string]struct {
		waits  func(s *session) []*fakeRequest
		queue  uint16
		cid    uint16
		want   []nvme.Status
		goesOn bool // what is behind does
	}{
		"Format": {func(s *session) []*fakeRequest {
			return []*fakeRequest{s.admin.start(withCID(formatCommand(1, 0, 0), first), nil)}
		}, 0, first, []nvme.Status{nvme.StatusAbortRequested}, true},
		"Compare of a pair": {pairWith(first, second), 1, first, []nvme.Status{nvme.StatusAbortRequested, nvme.StatusAbortFailedFused}, true},
		"Write of a pair":   {pairWith(first, second), 1, second, []nvme.Status{nvme.StatusAbortFailedFused, nvme.StatusAbortRequested}, true},
		"behind a Format": {func(s *session) []*fakeRequest {
			s.admin.start(formatCommand(1, 0, 0), nil)
			return []*fakeRequest{s.io.start(withCID(ioCommand(nvme.OpRead, 0, 1, 0), first), b)}
		}, 1, first, []nvme.Status{nvme.StatusAbortRequested}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := newTestVolume(1<<20, 512)
			tg := newTarget(t, v)
			s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
			defer s.close()
			defer other.close()
			defer v.release()
			v.setHold(true)
			other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), b)
			<-v.arrived
			waits := tc.waits(s)
			next := s.io.start(withCID(ioCommand(nvme.OpRead, 0, 1, 0), behind), make([]byte, 512))
			abort := func(on *session, cid uint16) uint32 {
				return on.admin.must(command(func(c *nvme.Command) { c.SetAbort(tc.queue, cid) }), nil).DW0()
			}
			if abort(other, tc.cid) != nvme.AbortNotDone || abort(s, 99) != nvme.AbortNotDone {
				t.Error("aborted what isn't there")
			}
			if got := abort(s, tc.cid); got != 0 {
				t.Fatalf("result %d", got)
			}
			for i, want := range tc.want {
				endsFused(t, "aborted command", waits[i], want)
			}
			if got := len(v.arrived) > 0; got != tc.goesOn {
				t.Errorf("the Read behind it goes on: %v", got)
			}
			v.release()
			endsFused(t, "Read", next, nvme.StatusSuccess)
		})
	}
}

func pairWith(first, second uint16) func(*session) []*fakeRequest {
	return func(s *session) []*fakeRequest {
		compare, write := fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1)
		compare.SetCID(first)
		write.SetCID(second)
		return []*fakeRequest{s.io.start(compare, make([]byte, 512)), s.io.start(write, make([]byte, 512))}
	}
}

// TestAbortAnsweredLast: an aborted command is answered before the Abort is, also in a target that keeps state.
func TestAbortAnsweredLast(t *testing.T) {
	for name, cmd := range map[string]nvme.Command{
		"Format":           formatCommand(1, 0, nvme.EraseNone),
		"write protection": setFeature(nvme.FeatWriteProtect, 1, writeProtected),
	} {
		t.Run(name, func(t *testing.T) {
			slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
				s := connect(t, tg, testNQN)
				var mu sync.Mutex
				var order []nvme.Opcode
				s.admin.answering = func(fr *fakeRequest) {
					mu.Lock()
					order = append(order, fr.Cmd.Opcode())
					mu.Unlock()
				}
				v.setHold(true)
				cmd.SetCID(7)
				aborted := s.admin.start(cmd, nil)
				abort := s.admin.start(command(func(c *nvme.Command) { c.SetAbort(0, 7) }), nil)
				if aborted.answered() || abort.answered() {
					t.Error("it doesn't wait for the volume")
				}
				v.release()
				endsFused(t, "aborted command", aborted, nvme.StatusAbortRequested)
				if got := abort.wait().DW0(); got != 0 {
					t.Errorf("result %d", got)
				}
				if want := []nvme.Opcode{cmd.Opcode(), nvme.OpAbort}; !slices.Equal(order, want) {
					t.Errorf("answered in the order %#x, not %#x", order, want)
				}
				s.close()
			}, func(c *Config) { c.Store = newMemStore() })
		})
	}
}

// TestPreemptIsNotAborted: Preempt and Abort, which has preempted and only waits for the other hosts' commands to end,
// can't be aborted then.
func TestPreemptIsNotAborted(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer s.close()
	defer other.close()
	registerAs(1, nvme.ResvRegister, 0, 11, 0).run(s.io)
	registerAs(2, nvme.ResvRegister, 0, 22, 0).run(other.io)
	defer v.release()
	v.setHold(true)
	read := other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512))
	<-v.arrived
	registerAs(1, nvme.ResvReplace, 11, 12, 0).run(s.io) // which waits for nothing
	op := acquireAs(1, nvme.ResvPreemptAndAbort, nvme.ResvWriteExclusive, 12, 22, 0)
	op.cmd.SetCID(7)
	preempt := s.io.start(op.cmd, op.keys.AppendTo(nil))
	if dw := s.admin.must(command(func(c *nvme.Command) { c.SetAbort(1, 7) }), nil).DW0(); dw != nvme.AbortNotDone || preempt.answered() {
		t.Errorf("result %d", dw)
	}
	v.release()
	endsFused(t, "Preempt and Abort", preempt, nvme.StatusSuccess)
	read.wait()
}

// TestAbortedBehind: a Format that comes and goes behind another one doesn't delay the first one's turn: parked
// commands go on when it has had its turn.
func TestAbortedBehind(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer s.close()
	defer other.close()
	defer v.release()
	v.setHold(true)
	b := make([]byte, 512)
	first := other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), b)
	<-v.arrived
	waits := other.admin.start(formatCommand(1, 0, nvme.EraseNone), nil)
	parked := other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), b)
	for range 3 {
		again := s.admin.start(formatCommand(1, 0, nvme.EraseNone), nil)
		s.admin.must(command(func(c *nvme.Command) { c.SetAbort(0, 0) }), nil)
		endsFused(t, "Format that is aborted", again, nvme.StatusAbortRequested)
	}
	if n := v.has(); n != 1 {
		t.Errorf("the volume has %d requests that Format waits for, want 1", n)
	}
	v.release()
	for _, r := range []*fakeRequest{first, waits, parked} {
		endsFused(t, "afterwards", r, nvme.StatusSuccess)
	}
}
