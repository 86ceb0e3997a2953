package target

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// ioWrite is a write of a block of namespace nsid, filled with one value.
func ioWrite(nsid uint32, value byte) (nvme.Command, []byte) {
	return command(func(c *nvme.Command) { c.SetIO(nvme.OpWrite, nsid, 0, 1, 0) }), bytes.Repeat([]byte{value}, 4096)
}

// writes starts such a write.
func (s *session) writes(nsid uint32, value byte) *fakeRequest {
	return s.io.start(ioWrite(nsid, value))
}

// has returns how many requests a volume has.
func (v *testVolume) has() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.held)
}

// lose ends the connections.
func (s *session) lose() {
	s.io.Disconnect(errLost)
	s.admin.Disconnect(errLost)
	synctest.Wait()
}

// leaveBehind makes a host lose its controller while the volume of namespace 1 keeps a write of a 1, and connect again.
func leaveBehind(t *testing.T, tg *Target, v *testVolume) *session {
	t.Helper()
	s := connect(t, tg, testNQN)
	s.io.must(ioWrite(2, 9))
	v.setHold(true)
	s.writes(1, 1)
	s.lose()
	return connect(t, tg, testNQN)
}

// heldUntilReleased makes a host write a 2 to the block of its old write: the volume gets it when the old one has
// ended.
func heldUntilReleased(t *testing.T, s *session, v *testVolume) {
	t.Helper()
	held := s.writes(1, 2)
	time.Sleep(aWhile)
	if n := v.has(); n != 1 {
		t.Errorf("the volume has %d requests", n)
	}
	v.release()
	time.Sleep(aWhile)
	held.wait()
	if v.data[0] != 2 {
		t.Errorf("the block has %d", v.data[0])
	}
}

// TestHeldAfterLostController: a host that lost its controller gets a new one that is ready at once, and none of its
// commands reaches a volume that still has an old write; commands to other volumes do, and those of other hosts.
func TestHeldAfterLostController(t *testing.T) {
	for name, lose := range map[string]func(*session){
		"connection lost": func(s *session) { s.admin.Disconnect(errLost) },
		"one queue lost":  func(s *session) { s.io.Disconnect(errLost) },
		"host is silent":  func(*session) { time.Sleep(5 * time.Second) },
		"closed":          func(s *session) { s.io.Disconnect(nil); s.admin.Disconnect(nil) },
		"bit by bit":      func(s *session) { s.io.slow = true; s.admin.Disconnect(errLost) },
	} {
		t.Run(name, func(t *testing.T) {
			slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
				s := &session{admin: dial(t, tg)}
				s.cntlid = connectAdmin(s.admin, testNQN, 5000)
				s.io = s.addQueue(t, tg, 1, testNQN)
				v.setHold(true)
				s.writes(1, 1)
				lose(s)
				synctest.Wait()
				s, other := connect(t, tg, testNQN), connectAs(t, tg, 7)
				old := v.has()
				held := []*fakeRequest{
					s.writes(1, 2),
					s.io.start(command(func(c *nvme.Command) { c.SetFlush(1) }), nil),
					s.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096)),
				}
				s.io.must(ioWrite(2, 3))
				time.Sleep(aWhile)
				if n := v.has(); old != 1 || n != 1 {
					t.Errorf("the volume has %d requests, then %d", old, n)
				}
				read := other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
				if v.has() != 2 {
					t.Error("another host's read is held")
				}
				v.release()
				time.Sleep(aWhile)
				for _, r := range append(held, read) {
					if st := r.wait().Status(); st != nvme.StatusSuccess {
						t.Errorf("afterwards: %#x", uint16(st))
					}
				}
				if v.data[0] != 2 || held[2].host[0] != 2 || read.host[0] != 1 {
					t.Errorf("the block has %d, which was read as %d; before %d", v.data[0], held[2].host[0], read.host[0])
				}
				if state := tg.Subsystem(testNQN).namespace(1).state.Load(); state != 0 {
					t.Errorf("reads and writes still look at %#x", state)
				}
				s.close()
				other.close()
			})
		})
	}
}

// TestHeldAfterLostQueue: an I/O queue that takes the place of one that ended, on the same controller, executes nothing
// where the volume still has a command of that one, and neither does any other queue of the controller.
func TestHeldAfterLostQueue(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s := connect(t, tg, testNQN)
		other := s.addQueue(t, tg, 2, testNQN)
		v.setHold(true)
		s.writes(1, 1)
		s.io.Disconnect(errLost)
		synctest.Wait()
		s.io = s.addQueue(t, tg, 1, testNQN)
		s.io.must(ioWrite(2, 3))
		other.must(ioWrite(2, 4))
		also := other.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
		heldUntilReleased(t, s, v)
		also.wait()
		if state := tg.Subsystem(testNQN).namespace(1).state.Load(); state != 0 {
			t.Errorf("reads and writes still look at %#x", state)
		}
		other.hangUp(nil)
		s.close()
	})
}

// TestHeldInOneSubsystem: what a host left in one subsystem holds none of its commands in another.
func TestHeldInOneSubsystem(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		const nqn = testNQN + "2"
		if _, err := tg.AddSubsystem(SubsystemConfig{NQN: nqn, AllowAnyHost: true,
			Namespaces: []NamespaceConfig{{Volume: newTestVolume(1<<20, 4096)}}}); err != nil {
			t.Fatal(err)
		}
		s, other := leaveBehind(t, tg, v), connect(t, tg, nqn)
		other.io.must(ioWrite(1, 3))
		heldUntilReleased(t, s, v)
		s.close()
		other.close()
	})
}

// TestHeldByNoPath: what a host has under way on a live controller holds none of its commands on another one.
func TestHeldByNoPath(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		one := connect(t, tg, testNQN)
		v.setHold(true)
		one.writes(1, 1)
		two := connect(t, tg, testNQN)
		two.writes(1, 2)
		if n := v.has(); n != 2 {
			t.Errorf("the volume has %d requests", n)
		}
		v.release()
		one.close()
		two.close()
	})
}

// TestHeldThroughReconnects: a host that connects again and again while a volume hangs can use the other volumes each
// time, and leaves nothing more behind.
func TestHeldThroughReconnects(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s := leaveBehind(t, tg, v)
		for range 3 {
			held := s.writes(1, 7)
			s.io.must(ioWrite(2, 3))
			s.io.hangUp(errLost)
			endsFused(t, "held write", held, nvme.StatusAbortSQDeleted)
			s.admin.hangUp(errLost)
			s = connect(t, tg, testNQN)
			if n := len(tg.Subsystem(testNQN).namespace(1).gate.held); n != 1 {
				t.Errorf("the commands of %d controllers are held", n)
			}
		}
		heldUntilReleased(t, s, v)
		s.close()
	})
}

// TestHeldEnds: a command that is held is ended by whatever ends waiting commands, and then never reaches the volume.
func TestHeldEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		end    func(*testing.T, *Target, *session)
		status nvme.Status
	}{
		"abort": {func(t *testing.T, _ *Target, s *session) {
			cqe := s.admin.must(command(func(c *nvme.Command) { c.SetAbort(1, 0) }), nil)
			if cqe.DW0() != 0 {
				t.Errorf("Abort: %#x", cqe.DW0())
			}
		}, nvme.StatusAbortRequested},
		"connection": {func(_ *testing.T, _ *Target, s *session) { s.io.hangUp(errLost) }, nvme.StatusAbortSQDeleted},
		"controller": {func(_ *testing.T, _ *Target, s *session) { s.admin.hangUp(errLost) }, nvme.StatusAbortSQDeleted},
		"reset": {func(t *testing.T, _ *Target, s *session) {
			s.admin.must(ccOff, nil)
			time.Sleep(aWhile) // the connection may only just be ending
			if status(s.admin).Ready() {
				t.Error("RDY is left, as if the command were under way")
			}
		}, nvme.StatusAbortSQDeleted},
		"namespace": {func(t *testing.T, tg *Target, _ *session) {
			go func() {
				if err := tg.Subsystem(testNQN).RemoveNamespace(1); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}, nvme.StatusInvalidNamespace | dnr},
		"subsystem": {func(_ *testing.T, tg *Target, s *session) {
			go func() { _ = tg.RemoveSubsystem(testNQN) }()
			s.io.waitClosed()
		}, nvme.StatusAbortSQDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
				s := leaveBehind(t, tg, v)
				held := s.writes(1, 2)
				if held.answered() {
					t.Fatal("it isn't held")
				}
				tc.end(t, tg, s)
				endsFused(t, "held write", held, tc.status)
				v.release()
				time.Sleep(aWhile)
				if v.data[0] != 1 {
					t.Errorf("the block has %d", v.data[0])
				}
				s.io.Disconnect(nil)
				s.admin.Disconnect(nil)
				synctest.Wait()
			})
		})
	}
}

// lateVolume takes a while for each request, sometimes short, sometimes long.
type lateVolume struct{ *testVolume }

func (v lateVolume) Submit(r *blockdev.Request) {
	time.AfterFunc(rand.N(50*time.Millisecond), func() { v.execute(r) })
}

// TestNothingLate: whenever a host loses its connections, it reads what it wrote last with a response, and that stays.
func TestNothingLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := lateVolume{newTestVolume(1<<20, 4096)}
		tg, err := New(Config{Subsystems: []SubsystemConfig{{NQN: testNQN, AllowAnyHost: true,
			Namespaces: []NamespaceConfig{{Volume: newTestVolume(1<<20, 4096)}, {Volume: v}}}}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			s := connect(t, tg, testNQN)
			answered, data := byte(i), make([]byte, 4096)
			<-s.writes(2, answered).done
			<-s.io.start(command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, 2, 0, 1, 0) }), data).done
			if data[0] != answered {
				t.Fatalf("round %d: %d was read", i, data[0])
			}
			for range rand.N(4) {
				s.writes(2, 0xee)
			}
			time.Sleep(rand.N(50 * time.Millisecond))
			s.lose()
		}
		time.Sleep(aWhile)
		closeTarget(t, tg)
	})
}

// TestHeldThroughReset: a controller that is enabled again while something is left still holds its commands.
func TestHeldThroughReset(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s := leaveBehind(t, tg, v)
		for range 3 {
			s.admin.must(ccOff, nil)
			s.io.waitClosed()
			s.admin.must(ccOn, nil)
			s.io = s.addQueue(t, tg, 1, testNQN)
			s.io.must(ioWrite(2, 3))
		}
		heldUntilReleased(t, s, v)
		s.close()
	})
}

// TestShutdownWaitsForLeftovers: a shutdown is complete only when nothing that its host left can reach a volume either,
// and what was held is done.
func TestShutdownWaitsForLeftovers(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		tg.Subsystem(testNQN).namespace(1).info.VolatileCache = false // a flush would wait at the volume
		idle, s := leaveBehind(t, tg, v), connect(t, tg, testNQN)
		held := s.writes(1, 2)
		for _, s := range []*session{idle, s} {
			s.admin.must(ccDown, nil)
			time.Sleep(aWhile)
			if st := status(s.admin).Shutdown(); st != nvme.CSTSShutdownOccurs {
				t.Errorf("SHST %#x while an old write is on its way", uint32(st))
			}
		}
		v.release()
		time.Sleep(aWhile)
		held.wait()
		for _, s := range []*session{idle, s} {
			if st := status(s.admin).Shutdown(); st != nvme.CSTSShutdownComplete {
				t.Errorf("SHST %#x afterwards", uint32(st))
			}
			s.close()
		}
		if v.data[0] != 2 {
			t.Errorf("the block has %d", v.data[0])
		}
	})
}

// TestHeldFromWhatWantsAlone: a pair and a Format of a host that left something wait for that, like every command, and
// held commands are executed before or after them, not never. Flush of all namespaces waits at the volume itself.
func TestHeldFromWhatWantsAlone(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s, other := leaveBehind(t, tg, v), connectAs(t, tg, 7)
		one := bytes.Repeat([]byte{1}, 4096)
		compare := s.io.start(command(func(c *nvme.Command) { c.SetIO(nvme.OpCompare, 1, 0, 1, 0); c.SetFuse(nvme.FuseFirst) }), one)
		cmd, data := ioWrite(1, 2)
		cmd.SetFuse(nvme.FuseSecond)
		write := s.io.start(cmd, data)
		held := s.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
		format := other.admin.start(formatCommand(1, 0, 0), nil)
		s.io.must(ioWrite(2, 3))
		flush := s.io.start(command(func(c *nvme.Command) { c.SetFlush(nvme.NSIDAll) }), nil)
		time.Sleep(aWhile)
		if n := v.has(); n != 2 {
			t.Errorf("the volume has %d requests, not the old write and the flush", n)
		}
		v.release()
		time.Sleep(aWhile)
		for _, r := range []*fakeRequest{compare, write, held, format, flush} {
			if st := r.wait().Status(); st != nvme.StatusSuccess {
				t.Errorf("command %#x: %#x", r.Cmd[0], uint16(st))
			}
		}
		if state := tg.Subsystem(testNQN).namespace(1).state.Load(); state != 0 {
			t.Errorf("reads and writes still look at %#x", state)
		}
		s.close()
		other.close()
	})
}

// TestHeldFromAll: if it isn't known which namespace a leftover command will reach, other commands reach none until it
// is known, also on a controller that is enabled again.
func TestHeldFromAll(t *testing.T) {
	for name, reset := range map[string]bool{"as it is": false, "enabled anew": true} {
		t.Run(name, func(t *testing.T) {
			slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
				s := connect(t, tg, testNQN, func(c *fakeConn) { c.holdPull, c.stays = true, true })
				v.setHold(true)
				s.io.start(command(func(c *nvme.Command) { c.SetFlush(1) }), nil)
				s.writes(2, 1)
				lost := s.io
				s.lose()
				s = connect(t, tg, testNQN)
				held := s.writes(2, 3)
				time.Sleep(aWhile)
				if held.answered() {
					t.Error("executed while an old write is on its way")
				}
				lost.come()
				if reset {
					s.admin.must(ccOff, nil)
					s.io.waitClosed()
					s.admin.must(ccOn, nil)
					s.io = s.addQueue(t, tg, 1, testNQN)
				} else {
					time.Sleep(aWhile)
					held.wait()
				}
				s.io.must(ioWrite(2, 3))
				v.release()
				s.close()
			})
		})
	}
}

// TestHeldFromAllOfOne: nor is it known if, of the queues with leftovers, one has a command on its way to a volume,
// even though it is clear where those of the others are.
func TestHeldFromAllOfOne(t *testing.T) {
	for range 5 { // the queues are looked at in any order
		slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
			s := connect(t, tg, testNQN)
			unsure := s.addQueue(t, tg, 2, testNQN, func(c *fakeConn) { c.holdPull, c.stays = true, true })
			v.setHold(true)
			s.writes(1, 1)
			unsure.start(ioWrite(2, 1))
			unsure.Disconnect(errLost)
			s.lose()
			s = connect(t, tg, testNQN)
			held := s.writes(2, 3)
			time.Sleep(aWhile)
			if held.answered() {
				t.Error("executed while an old write is on its way")
			}
			unsure.come()
			time.Sleep(aWhile)
			if st := held.wait().Status(); !st.OK() {
				t.Errorf("status %#x", uint16(st))
			}
			heldUntilReleased(t, s, v)
			s.close()
		})
	}
}

// TestHeldFromEach: each namespace is reached when nothing is left there, whatever is left on others.
func TestHeldFromEach(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		second := tg.Subsystem(testNQN).namespace(2).volume.(*testVolume)
		s := connect(t, tg, testNQN)
		v.setHold(true)
		second.setHold(true)
		s.writes(1, 1)
		s.writes(2, 1)
		s.lose()
		s = connect(t, tg, testNQN)
		one, two := s.writes(1, 2), s.writes(2, 2)
		time.Sleep(aWhile)
		if v.has() != 1 || second.has() != 1 {
			t.Error("executed while an old write is on its way")
		}
		second.release()
		time.Sleep(aWhile)
		two.wait()
		if one.answered() || v.has() != 1 {
			t.Error("executed while an old write is on its way")
		}
		v.release()
		time.Sleep(aWhile)
		one.wait()
		if v.data[0] != 2 || second.data[0] != 2 {
			t.Errorf("the blocks have %d and %d", v.data[0], second.data[0])
		}
		s.close()
	})
}

// TestHeldNoMore: a command isn't parked if it had to be held when that was checked, but doesn't any more.
func TestHeldNoMore(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s, other := leaveBehind(t, tg, v), leaveBehind(t, tg, v)
		ns, r := tg.Subsystem(testNQN).namespace(1), s.io.newRequest()
		r.engine.q = s.io.q
		ns.gate.unhold(ns, s.io.q.ctrl)
		if ns.state.Load()&nsHeld == 0 || ns.gate.park(ns, &r.Request) {
			t.Error("it is parked for good")
		}
		v.release()
		s.close()
		other.close()
	})
}

// TestParkedOfEndedController: a command that waited for a namespace that an owner had alone isn't executed if its
// controller has ended, even if its connection hasn't yet, and neither is one that arrives on that connection
// afterwards.
func TestParkedOfEndedController(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s, other := connect(t, tg, testNQN), connectAs(t, tg, 7)
		v.setHold(true)
		format := other.admin.start(formatCommand(1, 0, 0), nil)
		parked := s.writes(1, 1)
		s.io.slow = true
		s.admin.Disconnect(errLost)
		synctest.Wait()
		late := s.writes(2, 1)
		v.release()
		format.wait()
		time.Sleep(2 * time.Minute)
		endsFused(t, "parked write", parked, nvme.StatusAbortSQDeleted)
		endsFused(t, "late write", late, nvme.StatusAbortSQDeleted)
		second := tg.Subsystem(testNQN).namespace(2).volume.(*testVolume)
		if slices.Contains(v.ops(), blockdev.OpWrite) || slices.Contains(second.ops(), blockdev.OpWrite) {
			t.Error("it reached the volume")
		}
		other.close()
	})
}

// TestHeldIsTold: if it takes long, the log says once whose commands wait for which namespaces, whatever else is in
// use.
func TestHeldIsTold(t *testing.T) {
	var log lines
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s := leaveBehind(t, tg, v)
		busy := tg.Subsystem(testNQN).namespace(2)
		busy.get(0)
		time.Sleep(aWhile / 2)
		if said := log.with("commands of a host wait"); len(said) != 0 {
			t.Errorf("told at once: %s", said)
		}
		time.Sleep(20 * aWhile)
		said := log.with("level=WARN msg=\"commands of a host wait")
		if len(said) != 1 {
			t.Fatalf("told %d times", len(said))
		}
		if !strings.Contains(said[0], "host="+testHost) || !strings.Contains(said[0], "commands=1 namespaces=[1]") {
			t.Errorf("it doesn't say who and what: %s", said[0])
		}
		busy.put(0)
		v.release()
		s.close()
	}, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
}
