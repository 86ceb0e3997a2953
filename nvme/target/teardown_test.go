package target

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

var errLost = errors.New("connection lost")

// TestUnwanted: a request that a volume has from a connection is wanted as long as the connection lives; that a volume
// drops it afterwards isn't an error of the volume.
func TestUnwanted(t *testing.T) {
	v := newTestVolume(1<<20, 4096)
	v.hold = true
	var out bytes.Buffer
	tg := newTargetWith(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&out, nil)) }, v)
	s := connect(t, tg, testNQN)
	s.io.start(ioCommand(nvme.OpWrite, 0, 1, 0), make([]byte, 4096))
	<-v.arrived
	r := v.held[0]
	if r.Unwanted() {
		t.Error("a write isn't wanted whose host is there")
	}
	s.io.Disconnect(errLost)
	if !soon.Until(r.Unwanted) {
		t.Error("a write is wanted whose host is lost")
	}
	v.setFail(v.info.Fail(r.Op, r.Offset, blockdev.ErrUnwanted, nil))
	v.release()
	s.io.waitClosed()
	s.admin.hangUp(nil)
	if strings.Contains(out.String(), "I/O error") {
		t.Errorf("an error is in the log:\n%s", &out)
	}
}

// TestLostAtEveryStage: a connection dies while a command waits for memory, for data, for the
// volume or for its response to be sent; every request comes back once and nothing is left.
func TestLostAtEveryStage(t *testing.T) {
	for _, stage := range []string{"memory", "data", "volume", "sent", "view sent"} {
		for _, op := range []nvme.Opcode{nvme.OpRead, nvme.OpWrite, nvme.OpCompare, nvme.OpDSM, nvme.OpVerify} {
			t.Run(stage+"/"+nvmeName(op), func(t *testing.T) {
				v := newTestVolume(1<<20, 4096)
				volume := blockdev.Volume(v)
				if stage == "view sent" {
					volume = memVolume(t, 1<<20, 4096)
				}
				tg := newTarget(t, volume)
				s := connect(t, tg, testNQN, func(c *fakeConn) {
					c.allocNever = stage == "memory"
					c.holdPull = stage == "data"
					c.holdSent = stage == "sent" || stage == "view sent"
				})
				v.hold = stage == "volume"
				cmd := ioCommand(op, 0, 1, 0)
				data := make([]byte, 4096)
				switch op {
				case nvme.OpDSM:
					cmd = command(func(c *nvme.Command) { c.SetDSM(1, 1, nvme.DSMDeallocate) })
					copy(data, nvme.DSMRange{Blocks: 1}.AppendTo(nil))
				case nvme.OpVerify:
					data = nil
				}
				for range 3 {
					s.io.start(cmd, data)
				}
				s.io.Disconnect(errLost)
				if stage == "volume" {
					for range 3 {
						<-v.arrived
					}
					v.release()
				}
				s.io.waitClosed()
				s.admin.hangUp(nil)
				if n := tg.Snapshot().Transports[0]; n.Failures != 1 || n.InFlight != 0 {
					t.Errorf("%d failures, %d in flight", n.Failures, n.InFlight)
				}
			})
		}
	}
}

func nvmeName(op nvme.Opcode) string {
	return map[nvme.Opcode]string{nvme.OpRead: "read", nvme.OpWrite: "write", nvme.OpCompare: "compare",
		nvme.OpDSM: "dsm", nvme.OpVerify: "verify"}[op]
}

// TestMemoryTooLate: a command that waited for memory, and gets it when its connection has ended, isn't executed.
func TestMemoryTooLate(t *testing.T) {
	for _, op := range []nvme.Opcode{nvme.OpRead, nvme.OpWrite} {
		slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
			s := connect(t, tg, testNQN, func(c *fakeConn) { c.allocNever, c.stays = true, true })
			waiting := s.io.start(ioCommand(op, 0, 1, 0), make([]byte, 4096))
			s.lose()
			s.io.come()
			endsFused(t, "what waited for memory", waiting, nvme.StatusAbortSQDeleted)
			if ops := v.ops(); len(ops) != 0 {
				t.Errorf("the volume saw %v", ops)
			}
		})
	}
}

// TestLostWhileNamespaceIsTaken: commands that wait for a namespace that an owner has alone, perhaps for long, don't
// keep their connection from ending, or others behind them from their turn.
func TestLostWhileNamespaceIsTaken(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s, lost, other := connectAs(t, tg, 1), connectAs(t, tg, 2), connectAs(t, tg, 3)
	defer s.close()
	defer other.close()
	b := make([]byte, 512)
	v.setHold(true)
	format := s.admin.start(formatCommand(1, 0, nvme.EraseNone), nil)
	<-v.arrived
	gone := []*fakeRequest{
		lost.io.start(ioCommand(nvme.OpRead, 0, 1, 0), b),
		lost.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), b),
		lost.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), b),
		lost.admin.start(formatCommand(1, 0, nvme.EraseNone), nil),
	}
	stays := []*fakeRequest{
		other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), b),
		other.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), b),
		other.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), b),
		other.admin.start(formatCommand(1, 0, nvme.EraseNone), nil),
	}
	lost.io.Disconnect(errLost)
	lost.io.waitClosed()
	lost.admin.Disconnect(errLost)
	lost.admin.waitClosed()
	for i, r := range gone {
		if st := r.wait().Status(); st != nvme.StatusAbortSQDeleted {
			t.Errorf("command %d of the lost connection: %#x", i, uint16(st))
		}
	}
	if format.answered() || slices.ContainsFunc(stays, (*fakeRequest).answered) {
		t.Error("answered while the volume is being zeroed")
	}
	v.release()
	for i, r := range append(stays, format) {
		if st := r.wait().Status(); st != nvme.StatusSuccess {
			t.Errorf("command %d of the others: %#x", i, uint16(st))
		}
	}
}

// TestLostBeforeItsTurn: commands that waited behind a command that waited for a namespace go on when the connection of
// that one ends.
func TestLostBeforeItsTurn(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s, lost, other := connectAs(t, tg, 1), connectAs(t, tg, 2), connectAs(t, tg, 3)
	defer s.close()
	defer other.close()
	v.setHold(true)
	first := s.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512))
	<-v.arrived
	format := lost.admin.start(formatCommand(1, 0, nvme.EraseNone), nil)
	second := other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512))
	lost.admin.hangUp(errLost)
	lost.io.waitClosed()
	if st := format.wait().Status(); st != nvme.StatusAbortSQDeleted {
		t.Errorf("Format: %#x", uint16(st))
	}
	if _, ok := soon.Receive(v.arrived); !ok {
		t.Error("the Read behind it still waits")
	}
	v.release()
	for _, r := range []*fakeRequest{first, second} {
		if st := r.wait().Status(); st != nvme.StatusSuccess {
			t.Errorf("Read: %#x", uint16(st))
		}
	}
}

// TestLostDuringConnect: the connection dies while Connect waits for its data.
func TestLostDuringConnect(t *testing.T) {
	tg := newTarget(t)
	for _, hold := range []func(*fakeConn){
		func(c *fakeConn) { c.holdPull = true },
		func(c *fakeConn) { c.allocNever = true },
	} {
		c := dial(t, tg, hold)
		fr := c.start(connectCommand(0, 31, 5000), connectData(t, nvme.CNTLIDDynamic, testNQN))
		second := c.start(getProperty(nvme.PropCAP), nil)
		if st := second.wait().Status(); st != nvme.StatusInvalidOpcode|dnr {
			t.Errorf("a command beside Connect: %#x", uint16(st))
		}
		c.hangUp(errLost)
		if st := fr.wait().Status(); st == nvme.StatusSuccess {
			t.Error("Connect succeeded on a dead connection")
		}
		if n := tg.Snapshot().Controllers; n != 0 {
			t.Errorf("%d controllers left", n)
		}
	}
}

// TestAdminQueueLost: a controller ends with its admin queue, and so do all its I/O queues.
func TestAdminQueueLost(t *testing.T) {
	v := newTestVolume(1<<20, 4096)
	tg := newTarget(t, v)
	s := connect(t, tg, testNQN)
	other := s.addQueue(t, tg, 2, testNQN)
	v.setHold(true)
	stuck := other.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
	<-v.arrived
	s.admin.hangUp(errLost)
	s.io.waitClosed()
	if snap := tg.Snapshot(); snap.Controllers != 0 || snap.Connections != 1 {
		t.Errorf("%d controllers, %d connections", snap.Controllers, snap.Connections)
	}
	v.release()
	stuck.wait()
	other.waitClosed()
	late := dial(t, tg)
	late.fails(connectCommand(1, 31, 0), connectData(t, s.cntlid, testNQN), gone)
}

// TestIOQueueLost: a single I/O queue may be lost, and created again.
func TestIOQueueLost(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 4096))
	s := connect(t, tg, testNQN)
	s.io.hangUp(errLost)
	s.admin.must(getProperty(nvme.PropCSTS), nil)
	s.io = s.addQueue(t, tg, 1, testNQN)
	s.io.must(command(func(c *nvme.Command) { c.SetFlush(1) }), nil)
	s.close()
}

func TestDisconnectCommand(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 4096))
	s := connect(t, tg, testNQN)
	bad := command(func(c *nvme.Command) { c.SetDisconnect() })
	bad.SetCDW(10, 1)
	s.io.fails(bad, nil, nvme.StatusConnectFormat|dnr)
	s.io.must(command(func(c *nvme.Command) { c.SetDisconnect() }), nil)
	s.io.waitClosed()
	s.io = s.addQueue(t, tg, 1, testNQN)
	s.close()
}

// TestDisconnectLast: Disconnect is answered after all commands before it, and no command after it is executed.
func TestDisconnectLast(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*session, *testVolume)
		want nvme.Status
	}{
		"volume answers":  {func(_ *session, v *testVolume) { v.release() }, nvme.StatusSuccess},
		"connection lost": {func(s *session, _ *testVolume) { s.io.Disconnect(errLost) }, nvme.StatusAbortSQDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
				s := connect(t, tg, testNQN)
				v.setHold(true)
				write := s.writes(1, 1)
				last := s.io.start(command((*nvme.Command).SetDisconnect), nil)
				late := s.writes(2, 1)
				time.Sleep(aWhile)
				if write.answered() || last.answered() || late.answered() {
					t.Errorf("answered too early: write %t, Disconnect %t, write after it %t", write.answered(), last.answered(), late.answered())
				}
				c.end(s, v)
				time.Sleep(aWhile)
				endsFused(t, "Disconnect", last, c.want)
				endsFused(t, "write after it", late, nvme.StatusAbortSQDeleted)
				v.release()
				s.io.waitClosed()
				endsFused(t, "write", write, nvme.StatusSuccess)
				s.admin.hangUp(nil)
			})
		})
	}
}

// TestReset: CC.EN = 0 deletes the I/O queues and keeps the admin queue.
func TestReset(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 4096))
	s := connect(t, tg, testNQN)
	s.admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics)), nil)
	s.io.waitClosed()
	if csts := s.admin.must(getProperty(nvme.PropCSTS), nil).DW0(); csts != 0 {
		t.Errorf("CSTS %#x after reset", csts)
	}
	s.admin.fails(command(func(c *nvme.Command) { c.SetKeepAlive() }), nil, nvme.StatusCommandSequence|dnr)
	s.admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	s.io = s.addQueue(t, tg, 1, testNQN)
	s.close()
}

// TestCommandsOfEndedController: a command that arrives when the controller has ended, but the connection of its queue
// hasn't, isn't answered: hosts would take the error as final. Nor is the first half of a fused operation whose
// second it is.
func TestCommandsOfEndedController(t *testing.T) {
	read := ioCommand(nvme.OpRead, 0, 1, 0)
	compare, write := fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1)
	for name, end := range map[string]func(*controller){
		"fatal": func(c *controller) { c.csts |= nvme.CSTSFatal },
		"gone":  func(c *controller) { c.dead = true },
	} {
		for what, cmds := range map[string]struct{ before, after []nvme.Command }{
			"read":        {nil, []nvme.Command{read}},
			"pair":        {nil, []nvme.Command{compare, write}},
			"second half": {[]nvme.Command{compare}, []nvme.Command{write, read}},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				tg := newTarget(t, newTestVolume(1<<20, 4096))
				s := connect(t, tg, testNQN)
				c := tg.controller(s.cntlid)
				var all []*fakeRequest
				start := func(cmds []nvme.Command) {
					for _, cmd := range cmds {
						all = append(all, s.io.start(cmd, make([]byte, 4096)))
					}
				}
				start(cmds.before)
				c.mu.Lock()
				end(c)
				c.mu.Unlock()
				c.live.Store(false)
				start(cmds.after)
				for _, r := range all {
					if r.answered() {
						t.Errorf("answered with %v", r.wait().Status())
					}
				}
				c.mu.Lock()
				c.dead = false
				c.mu.Unlock()
				s.admin.hangUp(nil)
				s.io.waitClosed()
				for _, r := range all {
					if st := r.wait().Status(); st != nvme.StatusAbortSQDeleted {
						t.Errorf("it is given back with %v", st)
					}
				}
			})
		}
	}
}

// TestShutdownFlushes: CSTS.SHST says complete when the volatile caches have been flushed.
func TestShutdownFlushes(t *testing.T) {
	v := newTestVolume(1<<20, 4096)
	tg := newTarget(t, v, memVolume(t, 1<<20, 4096))
	s := connect(t, tg, testNQN)
	v.setHold(true)
	status := func() nvme.CSTS {
		return nvme.CSTS(s.admin.must(getProperty(nvme.PropCSTS), nil).DW0()).Shutdown()
	}
	s.admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable|nvme.CCSHNNormal)), nil)
	if st := status(); st != nvme.CSTSShutdownOccurs {
		t.Errorf("SHST %#x while a flush runs", uint32(st))
	}
	s.io.fails(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096), nvme.StatusCommandSequence|dnr)
	v.release()
	if st := status(); st != nvme.CSTSShutdownComplete {
		t.Errorf("SHST %#x after the flush", uint32(st))
	}
	if ops := v.ops(); len(ops) != 1 || ops[0] != blockdev.OpFlush {
		t.Errorf("the volume saw %v", ops)
	}
	s.admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	if st := status(); st != nvme.CSTSShutdownNone {
		t.Errorf("SHST %#x after SHN was cleared", uint32(st))
	}
	s.io.must(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
	s.close()
}

// TestShutdownTakenBack: a shutdown that the host revokes before the caches are flushed isn't complete afterwards.
func TestShutdownTakenBack(t *testing.T) {
	v := newTestVolume(1<<20, 4096)
	s := connect(t, newTarget(t, v), testNQN)
	defer s.close()
	v.setHold(true)
	s.admin.must(ccDown, nil)
	s.admin.must(ccOn, nil)
	v.release()
	if st := status(s.admin); st != nvme.CSTSReady {
		t.Errorf("CSTS %#x", uint32(st))
	}
	s.io.must(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
}

// TestShutdownAgainAndAgain: a host that repeatedly shuts its controller down and revokes that has one flush at a time,
// and the last shutdown is complete when a flush that began after it is.
func TestShutdownAgainAndAgain(t *testing.T) {
	v := newTestVolume(1<<20, 4096)
	tg := newTarget(t, v)
	s := connect(t, tg, testNQN)
	v.setHold(true)
	on := uint64(nvme.CCFabrics | nvme.CCEnable)
	for range 100 {
		s.admin.must(setProperty(nvme.PropCC, on|uint64(nvme.CCSHNNormal)), nil)
		s.admin.must(setProperty(nvme.PropCC, on), nil)
	}
	s.admin.must(setProperty(nvme.PropCC, on|uint64(nvme.CCSHNNormal)), nil)
	v.mu.Lock()
	n := len(v.held)
	v.mu.Unlock()
	if n != 1 {
		t.Errorf("%d flushes at once, want 1", n)
	}
	v.release()
	csts := nvme.CSTS(s.admin.must(getProperty(nvme.PropCSTS), nil).DW0()).Shutdown()
	if n := len(v.ops()); n != 2 || csts != nvme.CSTSShutdownComplete {
		t.Errorf("%d flushes, want 2; SHST %#x", n, uint32(csts))
	}
	s.close()
}

// TestRemoveWaits: a namespace is removed when the last request that uses its volume has ended.
func TestRemoveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTestVolume(1<<20, 4096)
		tg, err := New(Config{Subsystems: []SubsystemConfig{{NQN: testNQN, AllowAnyHost: true,
			Namespaces: []NamespaceConfig{{Volume: v}}}}})
		if err != nil {
			t.Fatal(err)
		}
		s := connect(t, tg, testNQN)
		s.io.holdSent = true
		v.hold = true
		fr := s.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
		removed := make(chan error, 1)
		go func() { removed <- tg.Subsystem(testNQN).RemoveNamespace(1) }()
		synctest.Wait()
		s.io.fails(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096), nvme.StatusInvalidNamespace|dnr)
		v.release()
		fr.wait()
		synctest.Wait()
		if len(removed) != 0 {
			t.Error("removed before the response was sent")
		}
		s.io.release()
		if err := <-removed; err != nil {
			t.Error(err)
		}
		s.close()
		closeTarget(t, tg)
	})
}

// TestRemovedWhileOneHasItAlone: commands that wait for a namespace that is removed are answered at once, though its
// volume hangs: neither they nor their connections, which may end, wait for the volume.
func TestRemovedWhileOneHasItAlone(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
		b := make([]byte, 4096)
		v.setHold(true)
		hangs := s.io.start(ioCommand(nvme.OpRead, 0, 1, 0), b)
		waiting := []*fakeRequest{
			other.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), b),
			other.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), b),
			other.admin.start(formatCommand(1, 0, 0), nil),
			other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), b),
		}
		removed := make(chan error, 1)
		go func() { removed <- tg.Subsystem(testNQN).RemoveNamespace(1) }()
		synctest.Wait()
		for i, r := range waiting {
			if !r.answered() {
				t.Errorf("command %d waits for a volume that hangs", i)
			} else if st := r.cqe.Status() &^ nvme.StatusMore; st != nvme.StatusInvalidNamespace|dnr {
				t.Errorf("command %d: status %#x", i, uint16(st))
			}
		}
		other.io.Disconnect(errLost)
		synctest.Wait()
		select {
		case <-other.io.closed:
		default:
			t.Error("a connection can't end before the volume answers")
		}
		if len(removed) > 0 {
			t.Error("removed while its volume is used")
		}
		v.release()
		hangs.wait()
		if err := <-removed; err != nil {
			t.Error(err)
		}
		other.admin.hangUp(nil)
		s.close()
	})
}

func TestRemoveSubsystem(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 4096))
	sub := tg.Subsystem(testNQN)
	s := connect(t, tg, testNQN)
	if sub.NQN() != testNQN {
		t.Errorf("NQN %q", sub.NQN())
	}
	if err := tg.RemoveSubsystem(testNQN); err != nil {
		t.Fatal(err)
	}
	s.io.waitClosed()
	s.admin.waitClosed()
	if !errors.Is(s.admin.reason, ErrRemoved) {
		t.Errorf("reason %v", s.admin.reason)
	}
	if err := tg.RemoveSubsystem(testNQN); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	dial(t, tg).fails(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN), nvme.StatusConnectInvalidParameter|dnr)
}

// TestRemovedStoresNothing: a subsystem that was removed doesn't touch what another one with its name has stored since,
// and none is added while one is being removed, which may still store something.
func TestRemovedStoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, v := newMemStore(), newTestVolume(1<<20, 4096)
		tg := newTargetWith(t, func(c *Config) { c.Store = store }, v)
		defer closeTarget(t, tg)
		old := tg.Subsystem(testNQN)
		ns := old.namespace(1)
		s := connect(t, tg, testNQN)
		v.setHold(true)
		s.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
		<-v.arrived
		removed := make(chan error, 1)
		go func() { removed <- tg.RemoveSubsystem(testNQN) }()
		synctest.Wait()
		again := SubsystemConfig{NQN: testNQN, AllowAnyHost: true, Namespaces: []NamespaceConfig{{Volume: newTestVolume(1<<20, 4096)}}}
		if _, err := tg.AddSubsystem(again); !errors.Is(err, ErrExists) {
			t.Errorf("added while it is being removed: %v", err)
		}
		v.release()
		if err := <-removed; err != nil {
			t.Fatal(err)
		}
		if _, err := tg.AddSubsystem(again); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := store.copy()
		old.noteEvent(nvme.PersistentTimestamp, nil, &nvme.TimestampChangeEvent{})
		synctest.Wait()
		for _, err := range []error{ns.saveReservation(&reservation{persist: true}), old.saveSanitize(&sanitizeState{}), old.forgetState(nvme.HostID(ns.uuid).String())} {
			if !errors.Is(err, errSubsystemClosed) {
				t.Errorf("saved: %v", err)
			}
		}
		if after := store.copy(); !reflect.DeepEqual(after, before) {
			t.Errorf("stored %q, before that %q", after, before)
		}
	})
}

func TestClose(t *testing.T) {
	v := newTestVolume(1<<20, 4096)
	tg := newTarget(t, v)
	s := connect(t, tg, testNQN)
	v.setHold(true)
	s.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
	<-v.arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tg.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close with a request at the volume: %v", err)
	}
	if _, err := tg.NewQueue(s.io); !errors.Is(err, ErrClosed) {
		t.Errorf("NewQueue of a closed target: %v", err)
	}
	if _, err := tg.AddSubsystem(SubsystemConfig{NQN: testNQN + "2"}); !errors.Is(err, ErrClosed) {
		t.Errorf("AddSubsystem to a closed target: %v", err)
	}
	v.release()
	if err := tg.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if !errors.Is(s.admin.reason, ErrClosed) {
		t.Errorf("reason %v", s.admin.reason)
	}
	for range 50 {
		if err := tg.Close(ctx); err != nil {
			t.Fatalf("nothing is left to wait for: %v", err)
		}
	}
}

// TestConnectionsOfALostHost: with a host that is lost all of its connections are, also those that the engine ends
// because of that; with one that leaves none is.
func TestConnectionsOfALostHost(t *testing.T) {
	for err, failures := range map[error]uint64{errLost: 2, nil: 0, ErrNotAllowed: 0} {
		var out bytes.Buffer
		tg := newTargetWith(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&out, nil)) }, newTestVolume(1<<20, 512))
		s := connect(t, tg, testNQN)
		s.admin.hangUp(err)
		s.io.waitClosed()
		if n := tg.Snapshot().Transports[0]; n.Disconnects != 2 || n.Failures != failures {
			t.Errorf("%v: %d disconnects, %d failures, want 2 and %d", err, n.Disconnects, n.Failures, failures)
		}
		if !errors.Is(s.io.reason, ErrControllerGone) || strings.Contains(out.String(), "I/O queue lost") {
			t.Errorf("%v: the I/O queue ended because of %v, and the log says\n%s", err, s.io.reason, &out)
		}
	}
}

// TestProbe: a connection that ends before Connect, like a port scan's, doesn't count as a lost host; one that was let
// in does.
func TestProbe(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	dial(t, tg).hangUp(errors.New("reset by the peer"))
	if n := tg.Snapshot().Transports[0]; n.Disconnects != 1 || n.Failures != 0 {
		t.Errorf("a probe: %d disconnects, %d failures", n.Disconnects, n.Failures)
	}
	c := dial(t, tg)
	connectAdmin(c, testNQN, 0)
	c.hangUp(errors.New("reset by the peer"))
	if n := tg.Snapshot().Transports[0]; n.Disconnects != 2 || n.Failures != 1 {
		t.Errorf("a host: %d disconnects, %d failures", n.Disconnects, n.Failures)
	}
}
