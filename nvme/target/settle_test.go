package target

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// slowVolume runs a test in virtual time with a target whose volume keeps its requests until it is released.
func slowVolume(t *testing.T, f func(t *testing.T, tg *Target, v *testVolume), change ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := newTestVolume(1<<20, 4096)
		cfg := Config{Subsystems: []SubsystemConfig{{NQN: testNQN, AllowAnyHost: true,
			Namespaces: []NamespaceConfig{{Volume: v}, {Volume: newTestVolume(1<<20, 4096)}}}}}
		for _, f := range change {
			f(&cfg)
		}
		tg, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		f(t, tg, v)
		closeTarget(t, tg)
	})
}

func status(c *fakeConn) nvme.CSTS {
	c.t.Helper()
	return nvme.CSTS(c.must(getProperty(nvme.PropCSTS), nil).DW0())
}

// aWhile is longer than it takes a controller to see that commands have ended.
const aWhile = time.Second

var (
	ccOff  = setProperty(nvme.PropCC, uint64(nvme.CCFabrics))
	ccOn   = setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable))
	ccDown = setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable|nvme.CCSHNNormal))
)

// TestFatalStays: a controller whose connections are about to end because of a fatal status executes no commands, even if
// its host takes back a shutdown meanwhile.
func TestFatalStays(t *testing.T) {
	s := connect(t, newTarget(t, newTestVolume(1<<20, 4096)), testNQN)
	defer s.close()
	s.admin.must(ccDown, nil)
	c := s.admin.q.ctrl
	c.mu.Lock()
	c.csts |= nvme.CSTSFatal // as fatal does before the connections end
	c.mu.Unlock()
	s.admin.must(ccOn, nil)
	if c.live.Load() || !status(s.admin).Fatal() {
		t.Errorf("live %t, CSTS %#x", c.live.Load(), uint32(status(s.admin)))
	}
}

// TestResetWaitsForVolume: a controller is disabled (CSTS.RDY = 0) only when no write can reach the volume any more,
// and not enabled again before that.
func TestResetWaitsForVolume(t *testing.T) {
	for name, hasty := range map[string]bool{"host waits for RDY": false, "host enables at once": true} {
		t.Run(name, func(t *testing.T) {
			slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
				s := connect(t, tg, testNQN)
				v.setHold(true)
				old := bytes.Repeat([]byte{1}, 4096)
				s.io.start(ioCommand(nvme.OpWrite, 0, 1, 0), old)
				s.admin.must(ccOff, nil)
				if hasty {
					s.admin.must(ccOn, nil)
				}
				time.Sleep(aWhile)
				if ready := status(s.admin).Ready(); ready == hasty {
					t.Errorf("RDY is %v while a write is on its way", ready)
				}
				dial(t, tg).fails(connectCommand(1, 31, 0), connectData(t, s.cntlid, testNQN), nvme.StatusConnectInvalidParameter|dnr)
				v.release()
				time.Sleep(aWhile)
				if ready := status(s.admin).Ready(); ready != hasty {
					t.Errorf("RDY is %v afterwards", ready)
				}
				if !bytes.Equal(v.data[:4096], old) {
					t.Error("disabled before the write had arrived")
				}
				s.admin.must(ccOn, nil)
				s.io.waitClosed()
				s.io = s.addQueue(t, tg, 1, testNQN)
				s.close()
			})
		})
	}
}

// lines is the output of a log, which can be read while it is written.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}

// with returns the lines that contain a text.
func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// TestSettlingIsTold: if it takes long, the log says once what a controller waits for; hosts only see that it isn't
// ready.
func TestSettlingIsTold(t *testing.T) {
	const told = "level=WARN msg=\"a controller waits"
	var log lines
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s := connect(t, tg, testNQN)
		v.setHold(true)
		for _, x := range []struct {
			after time.Duration
			times int
		}{{aWhile / 2, 0}, {2 * aWhile, 1}, {aWhile / 2, 0}, {20 * aWhile, 1}} {
			before := len(log.with(told))
			s.io.start(ioCommand(nvme.OpWrite, 0, 1, 0), make([]byte, 4096))
			s.admin.must(ccOff, nil)
			time.Sleep(x.after)
			said := log.with(told)[before:]
			if len(said) != x.times {
				t.Errorf("after %v: %q", x.after, said)
			}
			for _, line := range said {
				if !strings.Contains(line, "host="+testHost) || !strings.Contains(line, "commands=1 namespaces=[1]") {
					t.Errorf("it doesn't say who and what: %s", line)
				}
			}
			v.release()
			v.setHold(true)
			time.Sleep(aWhile)
			s.admin.must(ccOn, nil)
			s.io.waitClosed()
			s.io = s.addQueue(t, tg, 1, testNQN)
		}
		v.release()
		s.close()
	}, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
}

// TestShutdownWaitsForVolume: a shutdown is complete when all writes under way have arrived, and are durable.
func TestShutdownWaitsForVolume(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s := connect(t, tg, testNQN)
		v.setHold(true)
		write := s.io.start(ioCommand(nvme.OpWrite, 0, 1, 0), make([]byte, 4096))
		half := fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1)
		first := s.io.start(half, make([]byte, 4096))
		s.admin.must(ccDown, nil)
		time.Sleep(aWhile)
		if st := status(s.admin); st.Shutdown() != nvme.CSTSShutdownOccurs || !st.Ready() {
			t.Errorf("CSTS %#x while a write is on its way", uint32(st))
		}
		v.release()
		time.Sleep(aWhile)
		if st := status(s.admin).Shutdown(); st != nvme.CSTSShutdownComplete {
			t.Errorf("SHST %#x afterwards", uint32(st))
		}
		if st := write.wait().Status(); st != nvme.StatusSuccess {
			t.Errorf("the write: %#x", uint16(st))
		}
		endsFused(t, "first half of a pair", first, nvme.StatusAbortMissingFused)
		if ops := v.ops(); !slices.Equal(ops, []blockdev.Op{blockdev.OpWrite, blockdev.OpFlush}) {
			t.Errorf("the volume saw %v", ops)
		}
		s.close()
	})
}

// TestNothingWhileDisabled: a controller that was shut down and is disabled executes nothing, though its RDY stays set
// while a write is under way.
func TestNothingWhileDisabled(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s := connect(t, tg, testNQN)
		v.setHold(true)
		s.writes(1, 1)
		s.admin.must(ccDown, nil)
		s.admin.must(ccOff, nil)
		if !status(s.admin).Ready() {
			t.Error("RDY is gone")
		}
		s.admin.fails(getFeature(nvme.FeatArbitration, 0, 0), nil, nvme.StatusCommandSequence|dnr)
		v.release()
		time.Sleep(aWhile)
		s.io.waitClosed()
		s.admin.hangUp(nil)
	})
}

// TestResetEndsWaiting: a command that waits when its controller is reset never reaches the volume, whatever becomes
// available for it afterwards.
func TestResetEndsWaiting(t *testing.T) {
	for name, mode := range map[string]func(*fakeConn){
		"for data":   func(c *fakeConn) { c.holdPull, c.stays = true, true },
		"for memory": func(c *fakeConn) { c.allocNever, c.stays = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
				s := connect(t, tg, testNQN, mode)
				write := s.io.start(ioCommand(nvme.OpWrite, 0, 1, 0), make([]byte, 4096))
				s.admin.must(ccOff, nil)
				time.Sleep(aWhile)
				s.io.come()
				time.Sleep(aWhile)
				if status(s.admin).Ready() {
					t.Error("RDY is left")
				}
				if st := write.wait().Status(); st.OK() {
					t.Error("the write succeeded")
				}
				if ops := v.ops(); len(ops) > 0 {
					t.Errorf("the volume saw %v", ops)
				}
				s.io.waitClosed()
				s.admin.hangUp(nil)
			})
		})
	}
}

// TestOthersDontWait: a controller is disabled and shut down when its own commands have ended. It doesn't wait for
// those on another one that its host lost after it had become ready.
func TestOthersDontWait(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		lost, reset, down := connect(t, tg, testNQN), connect(t, tg, testNQN), connect(t, tg, testNQN)
		v.setHold(true)
		lost.io.start(ioCommand(nvme.OpWrite, 0, 1, 0), make([]byte, 4096))
		lost.io.Disconnect(errLost)
		lost.admin.Disconnect(errLost)
		synctest.Wait()
		reset.admin.must(ccOff, nil)
		if status(reset.admin).Ready() {
			t.Error("RDY is left")
		}
		down.admin.must(ccDown, nil)
		v.release()
		if ops := v.ops(); !slices.Equal(ops, []blockdev.Op{blockdev.OpWrite, blockdev.OpFlush}) {
			t.Errorf("the volume saw %v", ops)
		}
		if st := status(down.admin).Shutdown(); st != nvme.CSTSShutdownComplete {
			t.Errorf("SHST %#x", uint32(st))
		}
		reset.admin.hangUp(nil)
		down.close()
	})
}

// TestResetEndsFormat: a Format doesn't outlive a reset of its controller, a shutdown doesn't wait for all of it, and
// its effect on the volume is over when CSTS says so.
func TestResetEndsFormat(t *testing.T) {
	for name, tc := range map[string]struct {
		cc   nvme.Command
		over func(nvme.CSTS) bool
	}{
		"reset":    {ccOff, func(s nvme.CSTS) bool { return !s.Ready() }},
		"shutdown": {ccDown, func(s nvme.CSTS) bool { return s.Shutdown() == nvme.CSTSShutdownComplete }},
	} {
		t.Run(name, func(t *testing.T) {
			slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
				s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
				v.setHold(true)
				format := s.admin.start(formatCommand(1, 0, 0), nil)
				<-v.arrived
				s.admin.must(tc.cc, nil)
				time.Sleep(aWhile)
				if tc.over(status(s.admin)) {
					t.Error("over while the volume is being erased")
				}
				v.release()
				time.Sleep(aWhile)
				if !tc.over(status(s.admin)) {
					t.Errorf("CSTS %#x afterwards", uint32(status(s.admin)))
				}
				endsFused(t, "Format", format, nvme.StatusAbortRequested)
				s.io.Disconnect(nil)
				s.admin.hangUp(nil)

				s = connectAs(t, tg, 1)
				v.setHold(true)
				read := other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
				format = s.admin.start(formatCommand(1, 0, 0), nil)
				s.admin.must(tc.cc, nil)
				endsFused(t, "Format that waits", format, nvme.StatusAbortRequested)
				v.release()
				read.wait()
				other.io.must(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
				if n := len(slices.DeleteFunc(slices.Clone(v.ops()), func(op blockdev.Op) bool { return op != blockdev.OpWriteZeroes })); n != 1 {
					t.Errorf("the volume was told to write zeroes %d times", n)
				}
				other.close()
				s.io.Disconnect(nil)
				s.admin.hangUp(nil)
			})
		})
	}
}

// TestShutdownDropsHalf: the first half of a pair that is about to be held when its controller is shut down doesn't
// delay the shutdown.
func TestShutdownDropsHalf(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, _ *testVolume) {
		s := connect(t, tg, testNQN)
		half := s.io.newRequest()
		half.Cmd = fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1)
		s.io.wg.Add(1)
		// What Submit does if the shutdown comes just after it has seen that the controller is live.
		s.io.q.submitted.Add(1)
		half.begin(s.io.q, tg.Now())
		s.admin.must(ccDown, nil)
		half.fuse()
		time.Sleep(aWhile)
		if !half.answered() {
			t.Error("it is held")
		}
		if st := status(s.admin).Shutdown(); st != nvme.CSTSShutdownComplete {
			t.Errorf("SHST %#x", uint32(st))
		}
		s.close()
	})
}
