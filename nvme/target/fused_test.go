package target

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func fusedCommand(op nvme.Opcode, f nvme.Fuse, slba uint64, blocks uint32) nvme.Command {
	c := ioCommand(op, slba, blocks, 0)
	c.SetFuse(f)
	return c
}

// compareAndWrite sends a pair, for blocks of 512 bytes, and returns both statuses.
func compareAndWrite(c *fakeConn, slba uint64, old, data []byte) (compared, written nvme.Status) {
	c.t.Helper()
	n := uint32(len(data) / 512)
	first := c.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, slba, n), old)
	second := c.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, slba, n), data)
	return first.wait().Status() &^ nvme.StatusMore, second.wait().Status() &^ nvme.StatusMore
}

// TestCompareAndWrite: the blocks are written if they hold what the host expects, and otherwise nothing happens,
// however transport and volume respond.
func TestCompareAndWrite(t *testing.T) {
	for mode, change := range transportModes {
		for _, late := range []bool{false, true} {
			t.Run(mode, func(t *testing.T) {
				v := newTestVolume(1<<20, 512)
				v.late = late
				s := connect(t, newTarget(t, v), testNQN, change)
				defer s.close()
				zero, one, two := make([]byte, 20480), bytes.Repeat([]byte{1}, 20480), bytes.Repeat([]byte{2}, 20480)
				if a, b := compareAndWrite(s.io, 8, zero, one); a != 0 || b != 0 {
					t.Errorf("statuses %#x and %#x", uint16(a), uint16(b))
				}
				if a, b := compareAndWrite(s.io, 8, zero, two); a != nvme.StatusCompareFailure|dnr || b != nvme.StatusAbortFailedFused {
					t.Errorf("statuses %#x and %#x of a pair that doesn't match", uint16(a), uint16(b))
				}
				got := make([]byte, 20480)
				s.io.must(ioCommand(nvme.OpRead, 8, 40, 0), got)
				if !bytes.Equal(got, one) {
					t.Error("the blocks aren't what the first pair wrote")
				}
				page := make([]byte, nvme.SMARTLogSize)
				s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogSMART, NSID: 1, Length: nvme.SMARTLogSize}), page)
				var smart nvme.SMARTLog
				if err := smart.Parse(page); err != nil || smart.HostReads.Uint64() != 3 || smart.HostWrites.Uint64() != 2 {
					t.Errorf("SMART %+v, %v", smart, err)
				}
			})
		}
	}
}

// endsFused waits for one half of a pair.
func endsFused(t *testing.T, what string, fr *fakeRequest, want nvme.Status) {
	t.Helper()
	if got := fr.wait().Status() &^ nvme.StatusMore; got != want {
		t.Errorf("%s: status %#x, want %#x", what, uint16(got), uint16(want))
	}
}

// TestFusedPairs: halves must follow each other, and match.
func TestFusedPairs(t *testing.T) {
	s := connect(t, newTarget(t, newTestVolume(1<<20, 512)), testNQN)
	defer s.close()
	b := make([]byte, 1024)
	first := func() *fakeRequest { return s.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), b[:512]) }
	// A command in between.
	f := first()
	s.io.must(ioCommand(nvme.OpRead, 0, 1, 0), b[:512])
	endsFused(t, "first before a Read", f, nvme.StatusAbortMissingFused)
	s.io.fails(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), b[:512], nvme.StatusAbortMissingFused)
	// Two firsts.
	f = first()
	g := first()
	endsFused(t, "first before a first", f, nvme.StatusAbortMissingFused)
	endsFused(t, "Write that belongs", s.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), b[:512]), 0)
	endsFused(t, "second of two firsts", g, 0)
	// Halves that don't match.
	for _, tc := range []struct {
		cmd nvme.Command
		loc uint16
	}{
		{fusedCommand(nvme.OpWrite, nvme.FuseSecond, 1, 1), 40},
		{fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 2), 48},
	} {
		f = first()
		s.io.fails(tc.cmd, b, nvme.StatusInvalidField|dnr)
		if e := lastError(s.admin); e.Location != tc.loc {
			t.Errorf("location %d, want %d", e.Location, tc.loc)
		}
		endsFused(t, "first of a pair that doesn't match", f, nvme.StatusInvalidField|dnr)
	}
	// Other commands can't be fused. FUSE begins with bit 0 of byte 1.
	unfusable := func(cmd nvme.Command) {
		t.Helper()
		s.io.fails(cmd, b[:512], nvme.StatusInvalidField|dnr)
		if e := lastError(s.admin); e.Location != 1 {
			t.Errorf("location %d, want 1", e.Location)
		}
	}
	unfusable(fusedCommand(nvme.OpRead, nvme.FuseFirst, 0, 1))
	f = first()
	unfusable(fusedCommand(nvme.OpRead, nvme.FuseSecond, 0, 1))
	endsFused(t, "first before a fused Read", f, nvme.StatusAbortMissingFused)
	f = first()
	unfusable(fusedCommand(nvme.OpWrite, 3, 0, 1))
	endsFused(t, "first before FUSE 11b", f, nvme.StatusAbortMissingFused)
}

// TestFusedFailures: either half of a pair may fail by itself, and makes the other one fail.
func TestFusedFailures(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	s := connect(t, newTarget(t, v), testNQN)
	defer s.close()
	b := make([]byte, 1024)
	f := s.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 5000, 1), b[:512])
	g := s.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 5000, 1), b[:512])
	endsFused(t, "Compare beyond the end", f, nvme.StatusLBAOutOfRange|dnr)
	endsFused(t, "its Write", g, nvme.StatusAbortFailedFused)
	f = s.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), b[:512])
	g = s.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), b)
	endsFused(t, "Compare of a Write with the wrong length", f, nvme.StatusAbortFailedFused)
	endsFused(t, "Write with the wrong length", g, nvme.StatusSGLLengthInvalid|dnr)
	// Write protection concerns the Write.
	s.admin.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatWriteProtect, false, 1, 1) }), nil)
	if a, b := compareAndWrite(s.io, 0, b[:512], b[:512]); a != nvme.StatusAbortFailedFused || b != nvme.StatusNamespaceWriteProtected|dnr {
		t.Errorf("write protected: statuses %#x and %#x", uint16(a), uint16(b))
	}
	s.admin.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatWriteProtect, false, 1, 0) }), nil)
	// The volume fails.
	v.setFail(&blockdev.OpError{Op: "test", Path: "test", Offset: -1, Kind: blockdev.ErrMedium})
	if a, b := compareAndWrite(s.io, 0, b[:512], b[:512]); a != nvme.StatusUnrecoveredRead || b != nvme.StatusAbortFailedFused {
		t.Errorf("medium error: statuses %#x and %#x", uint16(a), uint16(b))
	}
	v.mu.Lock()
	v.fail = func(r *blockdev.Request) error {
		if r.Op != blockdev.OpWrite {
			return nil
		}
		return &blockdev.OpError{Op: "test", Path: "test", Offset: -1, Kind: blockdev.ErrMedium}
	}
	v.mu.Unlock()
	if a, b := compareAndWrite(s.io, 0, b[:512], b[:512]); a != 0 || b != nvme.StatusWriteFault {
		t.Errorf("medium error of the Write: statuses %#x and %#x", uint16(a), uint16(b))
	}
}

// TestFusedDurable: FUA of the Write of a pair reaches the volume, and that of the Compare makes what it read durable.
func TestFusedDurable(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	s := connect(t, newTarget(t, v), testNQN)
	defer s.close()
	b := make([]byte, 512)
	for _, want := range []int{0, 1} {
		w := ioCommand(nvme.OpWrite, 0, 1, []nvme.IOControl{0, nvme.ControlFUA}[want])
		w.SetFuse(nvme.FuseSecond)
		f := s.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), b)
		endsFused(t, "Write", s.io.start(w, b), 0)
		endsFused(t, "Compare", f, 0)
		if v.fua != want {
			t.Errorf("%d operations with FUA, want %d", v.fua, want)
		}
	}
	v.log = nil
	c := ioCommand(nvme.OpCompare, 0, 1, nvme.ControlFUA)
	c.SetFuse(nvme.FuseFirst)
	f := s.io.start(c, b)
	endsFused(t, "Write", s.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), b), 0)
	endsFused(t, "Compare", f, 0)
	if want := []blockdev.Op{blockdev.OpRead, blockdev.OpFlush, blockdev.OpWrite}; !slices.Equal(v.ops(), want) {
		t.Errorf("a Compare with FUA: %v, want %v", v.ops(), want)
	}
}

// TestFusedInCapsule: pairs whose data is in their capsules, including data that the volume couldn't take from there.
func TestFusedInCapsule(t *testing.T) {
	for _, align := range []int{1, 4096} {
		v := newTestVolume(1<<20, 512)
		v.info.Align = align
		s := connect(t, newTarget(t, v), testNQN)
		old := make([]byte, 1024)
		data := append([]byte{0}, bytes.Repeat([]byte{7}, 1024)...)[1:] // not aligned
		f := s.io.start(inCapsule(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 8, 2), 1024), old)
		g := s.io.start(inCapsule(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 8, 2), 1024), data)
		endsFused(t, "Compare", f, 0)
		endsFused(t, "Write", g, 0)
		if !bytes.Equal(v.data[4096:5120], data) {
			t.Errorf("alignment %d: the blocks aren't what the pair wrote", align)
		}
		s.close()
	}
}

// TestFusedReserved: a host that may read but not write can't write with a pair either, and no pair tells a host what
// it may not read.
func TestFusedReserved(t *testing.T) {
	for kind, want := range map[nvme.ResvType][2]nvme.Status{
		nvme.ResvWriteExclusive:  {nvme.StatusAbortFailedFused, resvConflict},
		nvme.ResvExclusiveAccess: {resvConflict, nvme.StatusAbortFailedFused},
	} {
		v := newTestVolume(1<<20, 512)
		tg := newTarget(t, v)
		holder, none := connectAs(t, tg, 1), connectAs(t, tg, 2)
		registerAs(1, nvme.ResvRegister, 0, 11, 0).run(holder.io)
		acquireAs(1, nvme.ResvAcquire, kind, 11, 0, 0).run(holder.io)
		zero, one := make([]byte, 512), bytes.Repeat([]byte{1}, 512)
		if a, b := compareAndWrite(none.io, 0, zero, one); a != want[0] || b != want[1] {
			t.Errorf("%v: statuses %#x and %#x, want %#x and %#x", kind, uint16(a), uint16(b), uint16(want[0]), uint16(want[1]))
		}
		if !bytes.Equal(v.data[:512], zero) {
			t.Errorf("%v: the pair was written", kind)
		}
		if a, b := compareAndWrite(holder.io, 0, zero, one); a != 0 || b != 0 {
			t.Errorf("%v: statuses %#x and %#x of the holder", kind, uint16(a), uint16(b))
		}
		holder.close()
		none.close()
	}
}

// TestFusedNamespaces: both halves must be for one namespace, which must exist.
func TestFusedNamespaces(t *testing.T) {
	s := connect(t, newTarget(t, newTestVolume(1<<20, 512)), testNQN)
	defer s.close()
	b := make([]byte, 512)
	pair := func(first, second uint32) (f, g *fakeRequest) {
		c, w := fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1)
		c.SetNSID(first)
		w.SetNSID(second)
		f = s.io.start(c, b)
		return f, s.io.start(w, b)
	}
	f, g := pair(1, 2)
	endsFused(t, "Compare of another namespace", f, nvme.StatusInvalidField|dnr)
	endsFused(t, "its Write", g, nvme.StatusInvalidField|dnr)
	if e := lastError(s.admin); e.Location != 4 {
		t.Errorf("location %d, want 4", e.Location)
	}
	f, g = pair(2, 2)
	endsFused(t, "Compare of no namespace", f, nvme.StatusInvalidNamespace|dnr)
	endsFused(t, "its Write", g, nvme.StatusAbortFailedFused)
}

// TestFusedDetached: a pair that waited for its namespace isn't executed if the namespace was detached from its
// controller meanwhile.
func TestFusedDetached(t *testing.T) {
	v := newTestVolume(1<<20, 4096)
	tg := newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Pool = newMemStore(), newMemPool(1<<20) }, v)
	s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer s.close()
	defer other.close()
	v.setHold(true)
	held := other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
	first := s.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), make([]byte, 4096))
	second := s.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), make([]byte, 4096))
	other.admin.must(attachCommand(1, nvme.NSDetach), controllerList(s.cntlid))
	v.release()
	held.wait()
	endsFused(t, "Compare", first, nvme.StatusInvalidNamespace|dnr)
	endsFused(t, "Write", second, nvme.StatusInvalidNamespace|dnr)
	other.io.must(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
	if slices.Contains(v.ops(), blockdev.OpWrite) {
		t.Error("it was written")
	}
}

// TestFusedConnectionEnds: halves are given back when the connection ends, and when their data doesn't come; the
// namespace is then open to others.
func TestFusedConnectionEnds(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	b := make([]byte, 512)
	s := connect(t, tg, testNQN)
	first := s.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), b)
	s.io.hangUp(nil)
	if st := first.wait().Status(); st != nvme.StatusAbortSQDeleted {
		t.Errorf("held first half: %#x", uint16(st))
	}
	for name, mode := range map[string]func(*fakeConn){
		"data":       func(c *fakeConn) { c.holdPull = true },
		"memory":     func(c *fakeConn) { c.allocNever = true },
		"data fails": func(c *fakeConn) { c.pullErr = errors.New("no data") },
	} {
		io := s.addQueue(t, tg, 1, testNQN, mode)
		first := io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), b)
		second := io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), b)
		io.hangUp(nil)
		if a, b := first.wait().Status(), second.wait().Status(); a.OK() || b.Code() != nvme.StatusAbortFailedFused {
			t.Errorf("%s: statuses %#x and %#x", name, uint16(a), uint16(b))
		}
	}
	io := s.addQueue(t, tg, 1, testNQN)
	io.must(ioCommand(nvme.OpRead, 0, 1, 0), b)
	s.admin.hangUp(nil)
}

// TestFusedWriteGivesUp: if the data of the Write isn't available any more when the Compare is answered, only the Write
// fails (NVM command set, "Compare and Write"), nothing is written, and the namespace is open to others.
func TestFusedWriteGivesUp(t *testing.T) {
	for name, tc := range map[string]struct {
		mode   func(*fakeConn)
		status nvme.Status
	}{
		"data fails":                        {func(c *fakeConn) { c.pullErr = errors.New("no data") }, nvme.StatusDataTransferError},
		"connection ends, waits for data":   {func(c *fakeConn) { c.holdPull = true }, nvme.StatusDataTransferError},
		"connection ends, waits for memory": {func(c *fakeConn) { c.allocNever = true }, nvme.StatusAbortSQDeleted},
	} {
		v := newTestVolume(1<<20, 512)
		tg := newTarget(t, v)
		s := connect(t, tg, testNQN)
		io := s.addQueue(t, tg, 2, testNQN)
		io.answering = func(fr *fakeRequest) {
			if fr.Cmd.Opcode() == nvme.OpCompare {
				tc.mode(io)
			}
		}
		first := io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), make([]byte, 512))
		second := io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), bytes.Repeat([]byte{1}, 512))
		io.hangUp(nil)
		if a, b := first.wait().Status(), second.wait().Status().Code(); a != 0 || b != tc.status {
			t.Errorf("%s: statuses %#x and %#x, want 0 and %#x", name, uint16(a), uint16(b), uint16(tc.status))
		}
		if slices.Contains(v.ops(), blockdev.OpWrite) {
			t.Errorf("%s: it was written", name)
		}
		s.io.must(ioCommand(nvme.OpWrite, 0, 1, 0), make([]byte, 512))
		s.close()
	}
}

// TestCompareAndWriteAtomic: hosts that use pairs to count in one block lose no count, whatever others write next to
// it.
func TestCompareAndWriteAtomic(t *testing.T) {
	const hosts, counts = 4, 50
	v := newTestVolume(1<<20, 512)
	v.late = true
	tg := newTarget(t, v)
	var wg sync.WaitGroup
	for i := range hosts {
		s := connect(t, tg, testNQN)
		wg.Go(func() {
			old, data := make([]byte, 512), make([]byte, 512)
			for done := 0; done < counts; {
				s.io.must(ioCommand(nvme.OpRead, 0, 1, 0), old)
				copy(data, old)
				binary.LittleEndian.PutUint64(data, binary.LittleEndian.Uint64(old)+1)
				if a, b := compareAndWrite(s.io, 0, old, data); a == 0 && b == 0 {
					done++
				}
				s.io.must(ioCommand(nvme.OpWrite, uint64(8+i), 1, 0), data)
			}
			s.close()
		})
	}
	wg.Wait()
	if n := binary.LittleEndian.Uint64(v.data); n != hosts*counts {
		t.Errorf("counted to %d, want %d", n, hosts*counts)
	}
}

// TestParked: commands wait for a namespace that a pair has alone, can be aborted meanwhile,
// and find it gone if it is removed, as the pair does between its two halves.
func TestParked(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s := connect(t, tg, testNQN)
	defer s.close()
	other := connect(t, tg, testNQN)
	b := make([]byte, 512)
	v.setHold(true)
	first := s.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), b)
	second := s.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), b)
	<-v.arrived // the Compare's read
	var reads []*fakeRequest
	const cid = 100 // of the first
	for i := range uint16(3) {
		cmd := ioCommand(nvme.OpRead, 0, 1, 0)
		cmd.SetCID(cid + i)
		reads = append(reads, other.io.start(cmd, b))
	}
	abort := func(q *fakeConn, sqid, cid uint16) uint32 {
		return q.must(command(func(c *nvme.Command) { c.SetAbort(sqid, cid) }), nil).DW0()
	}
	if abort(s.admin, 1, cid+1) != nvme.AbortNotDone || reads[1].answered() {
		t.Error("one host aborted a command of another")
	}
	if abort(other.admin, 1, cid+1) != 0 || reads[1].wait().Status().Code() != nvme.StatusAbortRequested {
		t.Error("a parked command was not aborted")
	}
	if abort(other.admin, 1, cid+1) != nvme.AbortNotDone || abort(other.admin, 2, cid) != nvme.AbortNotDone || abort(s.admin, 1, 9) != nvme.AbortNotDone {
		t.Error("aborted what isn't there")
	}
	if reads[0].answered() || first.answered() {
		t.Error("a command went on beside the pair")
	}
	sub := tg.Subsystem(testNQN)
	ns := sub.namespace(1)
	removed := make(chan error)
	go func() { removed <- sub.RemoveNamespace(1) }()
	if !soon.Until(func() bool { return ns.state.Load()&nsRemoved != 0 }) {
		t.Fatal("not removed")
	}
	v.release() // the Compare's read; the pair goes no further
	for i, want := range []nvme.Status{nvme.StatusInvalidNamespace | dnr, nvme.StatusAbortFailedFused} {
		if st := []*fakeRequest{first, second}[i].wait().Status() &^ nvme.StatusMore; st != want {
			t.Errorf("command %d of the pair: status %#x, want %#x", i+1, uint16(st), uint16(want))
		}
	}
	if err := <-removed; err != nil {
		t.Error(err)
	}
	for _, i := range []int{0, 2} {
		if st := reads[i].wait().Status().Code(); st != 0 && st != nvme.StatusInvalidNamespace {
			t.Errorf("parked read: %#x", uint16(st))
		}
	}
	other.close()
}

// TestPairOfRemovedNamespace: a pair that waited for a namespace that is removed meanwhile doesn't touch it any more.
func TestPairOfRemovedNamespace(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s, other := connect(t, tg, testNQN), connect(t, tg, testNQN)
	defer s.close()
	defer other.close()
	b := make([]byte, 512)
	v.setHold(true)
	read := other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), b)
	<-v.arrived
	first := s.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), b)
	second := s.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), b)
	sub := tg.Subsystem(testNQN)
	ns := sub.namespace(1)
	removed := make(chan error)
	go func() { removed <- sub.RemoveNamespace(1) }()
	if !soon.Until(func() bool { return ns.state.Load()&nsRemoved != 0 }) {
		t.Fatal("not removed")
	}
	v.release()
	endsFused(t, "Read", read, 0)
	endsFused(t, "Compare", first, nvme.StatusInvalidNamespace|dnr)
	endsFused(t, "Write", second, nvme.StatusInvalidNamespace|dnr)
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if ops := v.ops(); !slices.Equal(ops, []blockdev.Op{blockdev.OpRead}) {
		t.Errorf("the volume was told %v", ops)
	}
}

// TestPairsTakeTurns: commands that wait while a pair has the namespace are executed before the next pair, and so are
// executed even if hosts send pairs all the time.
func TestPairsTakeTurns(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s, other, third := connect(t, tg, testNQN), connect(t, tg, testNQN), connect(t, tg, testNQN)
	b := make([]byte, 512)
	v.setHold(true)
	all := []*fakeRequest{
		s.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), b),
		s.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), b),
	}
	<-v.arrived // the Compare's read
	all = append(all,
		other.io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), b),
		other.io.start(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), b),
		third.io.start(command(func(c *nvme.Command) { c.SetFlush(1) }), nil),
	)
	v.release()
	for i, r := range all {
		if st := r.wait().Status(); st != nvme.StatusSuccess {
			t.Errorf("command %d: %#x", i, uint16(st))
		}
	}
	want := []blockdev.Op{blockdev.OpRead, blockdev.OpWrite, blockdev.OpFlush, blockdev.OpRead, blockdev.OpWrite}
	if ops := v.ops(); !slices.Equal(ops, want) {
		t.Errorf("the volume was told %v, want %v", ops, want)
	}
	for _, s := range []*session{s, other, third} {
		s.close()
	}
}

// TestWithdrawBeforeInclude: a pair of a silent host waits again before it gives the namespace to others. If its
// connection ends between the two, only the second wait is withdrawn: the first has had its turn.
func TestWithdrawBeforeInclude(t *testing.T) {
	ns := newTarget(t, newTestVolume(1<<20, 512)).Subsystem(testNQN).namespace(1)
	r := new(Request)
	turns, others := 0, 0
	ns.exclude(r, func() {
		if turns++; turns > 1 {
			return
		}
		ns.exclude(r, func() { t.Error("the pair that was withdrawn has its turn") })
		if out := ns.withdraw(func(*Request) bool { return true }); len(out) != 1 || out[0] != r {
			t.Errorf("withdrawn: %v", out)
		}
	})
	if turns != 1 {
		t.Fatalf("the first wait had %d turns", turns)
	}
	ns.exclude(nil, func() { others++; ns.include() })
	ns.include()
	if others != 1 || ns.excluded() {
		t.Errorf("others had %d turns", others)
	}
}

// TestAbortChain: a command of many operations ends between two of them, and the Abort with it.
func TestAbortChain(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s := connect(t, tg, testNQN)
	defer s.close()
	for name, cmd := range map[string]nvme.Command{
		"Verify":  ioCommand(nvme.OpVerify, 0, 2048, 0),
		"Compare": ioCommand(nvme.OpCompare, 0, 1024, 0),
	} {
		v.setHold(true)
		cmd.SetCID(77)
		long := s.io.start(cmd, make([]byte, 512<<10))
		<-v.arrived
		abort := s.admin.start(command(func(c *nvme.Command) { c.SetAbort(1, 77) }), nil)
		if abort.answered() || long.answered() {
			t.Errorf("%s: answered before its volume", name)
		}
		if again := s.admin.must(command(func(c *nvme.Command) { c.SetAbort(1, 77) }), nil).DW0(); again != nvme.AbortNotDone {
			t.Errorf("%s: a second Abort was counted", name)
		}
		v.release()
		if st := long.wait().Status().Code(); st != nvme.StatusAbortRequested || abort.wait().DW0() != 0 {
			t.Errorf("%s: status %#x, result %d", name, uint16(st), abort.wait().DW0())
		}
		if n := len(s.io.q.chains.all); n != 0 {
			t.Errorf("%d chains are left", n)
		}
	}
	// A chain that has nothing left to do ends normally.
	v.setHold(true)
	cmd := ioCommand(nvme.OpVerify, 0, 1, 0)
	cmd.SetCID(78)
	short := s.io.start(cmd, nil)
	<-v.arrived
	abort := s.admin.start(command(func(c *nvme.Command) { c.SetAbort(1, 78) }), nil)
	v.release()
	if st := short.wait().Status().Code(); (st == 0) != (abort.wait().DW0() == nvme.AbortNotDone) {
		t.Errorf("status %#x, result %d", uint16(st), abort.wait().DW0())
	}
}
