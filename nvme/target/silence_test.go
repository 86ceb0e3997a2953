package target

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

const silentKATO = 4 * time.Second // of hosts that are cut off

// connectAlive connects a host that has to show that it is alive.
func connectAlive(t *testing.T, tg *Target) *session {
	t.Helper()
	s := &session{admin: dial(t, tg)}
	s.cntlid = connectAdmin(s.admin, testNQN, uint32(silentKATO.Milliseconds()))
	s.io = s.addQueue(t, tg, 1, testNQN)
	return s
}

// waits are the ways in which a command that changes block 0 of namespace 1 may have to wait before its volume gets it,
// or the rest of it. Each begins such a command on a new controller, and returns what ends the wait.
var waits = map[string]func(t *testing.T, tg *Target, v *testVolume) (s *session, waiting *fakeRequest, end func()){
	"for what its host left behind": func(t *testing.T, tg *Target, v *testVolume) (*session, *fakeRequest, func()) {
		s := connectAlive(t, tg)
		v.setHold(true)
		s.io.start(ioCommand(nvme.OpRead, 8, 1, 0), make([]byte, 4096))
		s.lose()
		s = connectAlive(t, tg)
		return s, s.writes(1, 2), v.release
	},
	"for a pair": func(t *testing.T, tg *Target, v *testVolume) (*session, *fakeRequest, func()) {
		s, third := connectAlive(t, tg), connectAs(t, tg, 3)
		v.setHold(true)
		third.io.start(ioCommand(nvme.OpRead, 8, 1, 0), make([]byte, 4096))
		third.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 8, 1), make([]byte, 4096))
		third.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 8, 1), make([]byte, 4096))
		return s, s.writes(1, 2), v.release
	},
	"as a pair": func(t *testing.T, tg *Target, v *testVolume) (*session, *fakeRequest, func()) {
		s, third := connectAlive(t, tg), connectAs(t, tg, 3)
		v.setHold(true)
		third.io.start(ioCommand(nvme.OpRead, 8, 1, 0), make([]byte, 4096))
		s.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), make([]byte, 4096))
		return s, s.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), bytes.Repeat([]byte{2}, 4096)), v.release
	},
	"for the Compare of its pair": func(t *testing.T, tg *Target, v *testVolume) (*session, *fakeRequest, func()) {
		s := connectAlive(t, tg)
		s.io.must(ioWrite(1, 3)) // as it will be when the Compare ends
		v.setHold(true)
		s.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), bytes.Repeat([]byte{3}, 4096))
		return s, s.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), bytes.Repeat([]byte{2}, 4096)), v.release
	},
	"for memory": func(t *testing.T, tg *Target, _ *testVolume) (*session, *fakeRequest, func()) {
		s := connectAlive(t, tg)
		s.io.allocNever = true
		cmd, data := ioWrite(1, 2)
		capsule := append([]byte{0}, data...)[1:] // the volume doesn't take it from there
		return s, s.io.start(inCapsule(cmd, 4096), capsule), func() { s.io.allocNever = false; s.io.come() }
	},
	"for the first half of a Copy": func(t *testing.T, tg *Target, v *testVolume) (*session, *fakeRequest, func()) {
		s := connectAlive(t, tg)
		s.io.must(command(func(c *nvme.Command) { c.SetIO(nvme.OpWrite, 1, 8, 1, 0) }), bytes.Repeat([]byte{2}, 4096))
		v.setHold(true)
		return s, s.io.start(copyCommand(0, 0, nvme.CopyRange{SLBA: 8, Blocks: 1})), v.release
	},
	"for another range to be discarded": func(t *testing.T, tg *Target, v *testVolume) (*session, *fakeRequest, func()) {
		s := connectAlive(t, tg)
		v.setHold(true)
		return s, s.io.start(dsm(2, nvme.DSMRange{SLBA: 8, Blocks: 1}, nvme.DSMRange{SLBA: 0, Blocks: 1})), v.release
	},
}

// whileWaiting runs a test for each of the waits. other is the same host on another target that has the volume.
func whileWaiting(t *testing.T, f func(t *testing.T, v *testVolume, other, s *session, waiting *fakeRequest, end func())) {
	t.Helper()
	for name, begin := range waits {
		t.Run(name, func(t *testing.T) {
			slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
				second, err := New(Config{Subsystems: []SubsystemConfig{{NQN: testNQN, AllowAnyHost: true, Namespaces: []NamespaceConfig{{Volume: v}}}}})
				if err != nil {
					t.Fatal(err)
				}
				other := connect(t, second, testNQN)
				s, waiting, end := begin(t, tg, v)
				v.setHold(false) // for others
				f(t, v, other, s, waiting, end)
				closeTarget(t, second)
			}, func(c *Config) { c.Subsystems[0].Namespaces[0].Volume.(*testVolume).info.Align = 4096 })
		})
	}
}

// TestNothingLateOfHostCutOff: the network to a host is cut while a command waits. The host notices, sends the command
// by another path, and then writes something else. That stays, although the target hasn't noticed when the wait ends.
func TestNothingLateOfHostCutOff(t *testing.T) {
	whileWaiting(t, func(t *testing.T, v *testVolume, other, s *session, waiting *fakeRequest, end func()) {
		time.Sleep(silentKATO * 3 / 4)
		other.io.must(ioWrite(1, 2))
		other.io.must(ioWrite(1, 3))
		end()
		time.Sleep(silentKATO / 8)
		if s.io.isClosed() {
			t.Fatal("the target has noticed too early for this test")
		}
		time.Sleep(silentKATO)
		if st := waiting.wait().Status(); st != nvme.StatusAbortSQDeleted {
			t.Errorf("status %#x", uint16(st))
		}
		if v.data[0] != 3 {
			t.Errorf("the block has %d", v.data[0])
		}
	})
}

// executed fails t unless a command has been answered, with success.
func executed(t *testing.T, waiting *fakeRequest) {
	t.Helper()
	if !waiting.answered() {
		t.Fatal("not executed")
	}
	if st := waiting.cqe.Status(); st != nvme.StatusSuccess {
		t.Errorf("status %#x", uint16(st))
	}
}

// TestWaitingOfSilentHost: a command that has waited is executed when its host is heard of again.
func TestWaitingOfSilentHost(t *testing.T) {
	whileWaiting(t, func(t *testing.T, _ *testVolume, _, s *session, waiting *fakeRequest, end func()) {
		time.Sleep(silentKATO * 3 / 4)
		end()
		time.Sleep(silentKATO / 8)
		if waiting.answered() {
			t.Error("executed while its host was silent")
		}
		s.admin.must(keepAlive, nil)
		time.Sleep(rarestLook)
		synctest.Wait()
		executed(t, waiting)
	})
}

// TestWaitingOfHostHeardOf: a command that has waited is executed at once if its host has just been heard of, or needn't
// show that it is alive.
func TestWaitingOfHostHeardOf(t *testing.T) {
	setKATO := setFeature(nvme.FeatKATO, 0, uint32(time.Hour.Milliseconds()))
	for name, cmd := range map[string]nvme.Command{"heard of": keepAlive, "needn't show": setKATO} {
		t.Run(name, func(t *testing.T) {
			whileWaiting(t, func(t *testing.T, _ *testVolume, _, s *session, waiting *fakeRequest, end func()) {
				time.Sleep(silentKATO * 3 / 4)
				s.admin.must(cmd, nil)
				if cmd == setKATO {
					time.Sleep(silentKATO)
				}
				end()
				time.Sleep(rarestLook)
				synctest.Wait()
				executed(t, waiting)
			})
		})
	}
}

// TestLooksAtSilentHost: a command that waits for a silent host looks soon whether it is heard of, then more and more
// rarely: with thousands of commands and a timeout of minutes the looks would otherwise keep a processor busy.
func TestLooksAtSilentHost(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, _ *testVolume) {
		c := dial(t, tg)
		connectAdmin(c, testNQN, 120_000)
		time.Sleep(time.Minute)
		r := &Request{}
		r.engine.q = c.q
		var looks []time.Time
		var look func(*Request)
		look = func(r *Request) {
			looks = append(looks, time.Now())
			r.postponed(look)
		}
		look(r)
		time.Sleep(30 * time.Second)
		c.must(keepAlive, nil)
		time.Sleep(rarestLook)
		synctest.Wait()
		if n := len(looks); n < 4 || looks[1].Sub(looks[0]) != firstLook || n > 20+int(30*time.Second/rarestLook) {
			t.Errorf("%d looks in 30 s, the first two at %v", n, looks[:min(n, 2)])
		}
	})
}
