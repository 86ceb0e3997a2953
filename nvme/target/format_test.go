package target

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func formatCommand(nsid uint32, lbaf int, ses nvme.SecureErase) nvme.Command {
	return command(func(c *nvme.Command) { c.SetFormat(nsid, lbaf, ses) })
}

// TestFormat: all blocks are zero and durable afterwards, and commands that arrived meanwhile are executed after it.
func TestFormat(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	for i := range v.data {
		v.data[i] = 0xaa
	}
	tg := newTarget(t, v)
	s := connectAs(t, tg, 1)
	defer s.close()
	s.io.must(ioCommand(nvme.OpWriteUncorrectable, 5, 1, 0), nil)
	v.setHold(true)
	format := s.admin.start(formatCommand(1, 0, nvme.EraseUser), nil)
	<-v.arrived
	read := s.io.start(ioCommand(nvme.OpRead, 0, 8, 0), bytes.Repeat([]byte{1}, 4096))
	if read.answered() || format.answered() {
		t.Error("answered while the volume is being zeroed")
	}
	v.release()
	if st := format.wait().Status(); st != 0 {
		t.Errorf("status %#x", uint16(st))
	}
	if st := read.wait().Status(); st != 0 || !bytes.Equal(read.host, make([]byte, 4096)) {
		t.Errorf("read: status %#x, %x…", uint16(st), read.host[:8])
	}
	if !bytes.Equal(v.data, make([]byte, len(v.data))) {
		t.Error("the volume isn't zero")
	}
	if ops := v.ops(); len(ops) < 2 || ops[1] != blockdev.OpFlush {
		t.Errorf("the volume was told %v", ops)
	}
}

// TestFormatReserved: only the holder of a reservation may format.
func TestFormatReserved(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer s.close()
	defer other.close()
	registerAs(2, nvme.ResvRegister, 0, 22, 0).run(other.io)
	acquireAs(2, nvme.ResvAcquire, nvme.ResvWriteExclusive, 22, 0, 0).run(other.io)
	s.admin.fails(formatCommand(1, 0, nvme.EraseNone), nil, resvConflict)
	other.admin.must(formatCommand(1, 0, nvme.EraseNone), nil)
	releaseAs(2, nvme.ResvRelease, nvme.ResvWriteExclusive, 22, 0).run(other.io)
	s.admin.must(formatCommand(1, 0, nvme.EraseNone), nil)
}

// TestFormatRefused: what can't be formatted, with the place of the error, and a write-protected namespace.
func TestFormatRefused(t *testing.T) {
	s := connectAs(t, newTarget(t, newTestVolume(1<<20, 512)), 1)
	defer s.close()
	for _, tc := range []struct {
		name   string
		cmd    nvme.Command
		status nvme.Status
		loc    uint16
	}{
		{"no namespace", formatCommand(7, 0, 0), nvme.StatusInvalidNamespace, 4},
		{"all namespaces", formatCommand(nvme.NSIDAll, 0, 0), nvme.StatusInvalidField, 4}, // as FNA says
		{"format 1", formatCommand(1, 1, 0), nvme.StatusInvalidFormat, 40},
		{"format 16", formatCommand(1, 16, 0), nvme.StatusInvalidFormat, 40},
		{"protection", command(func(c *nvme.Command) { c.SetFormat(1, 0, 0); c.SetCDW(10, 1<<5) }), nvme.StatusInvalidFormat, 40 | 5<<8},
		{"cryptographic erase", formatCommand(1, 0, nvme.EraseCrypto), nvme.StatusInvalidField, 41 | 1<<8},
	} {
		s.admin.fails(tc.cmd, nil, tc.status|dnr)
		if e := lastError(s.admin); e.Location != tc.loc {
			t.Errorf("%s: location %#x, want %#x", tc.name, e.Location, tc.loc)
		}
	}
	s.admin.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatWriteProtect, false, 1, 1) }), nil)
	s.admin.fails(formatCommand(1, 0, 0), nil, nvme.StatusNamespaceWriteProtected|dnr)
	s.admin.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatWriteProtect, false, 1, 0) }), nil)
	s.admin.must(formatCommand(1, 0, 0), nil)
}

// TestFormatFails: Format fails if the volume does, can be aborted, and opens the namespace to others in either case.
func TestFormatFails(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s := connectAs(t, tg, 1)
	defer s.close()
	s.io.must(ioCommand(nvme.OpWriteUncorrectable, 5, 1, 0), nil)
	v.setFail(&blockdev.OpError{Op: "test", Path: "test", Offset: -1, Kind: blockdev.ErrCapacity})
	s.admin.fails(formatCommand(1, 0, 0), nil, nvme.StatusCapacityExceeded|dnr)
	v.setFail(nil)
	s.io.fails(ioCommand(nvme.OpRead, 5, 1, 0), make([]byte, 512), mediumError) // still marked
	s.io.must(ioCommand(nvme.OpWrite, 5, 1, 0), make([]byte, 512))
	v.setHold(true)
	cmd := formatCommand(1, 0, 0)
	cmd.SetCID(99)
	format := s.admin.start(cmd, nil)
	<-v.arrived
	abort := s.admin.start(command(func(c *nvme.Command) { c.SetAbort(0, 99) }), nil)
	v.release()
	if st := format.wait().Status().Code(); st != nvme.StatusAbortRequested || abort.wait().DW0() != 0 {
		t.Errorf("status %#x, result %d", uint16(st), abort.wait().DW0())
	}
	s.io.must(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512))
	if st := tg.Subsystem(testNQN).namespace(1).state.Load(); st != 0 {
		t.Errorf("state bits %#x are left", st)
	}
}

// TestFormatNotSaved: Format fails if it can't be saved that no block is marked uncorrectable any more.
func TestFormatNotSaved(t *testing.T) {
	store := newMemStore()
	s := connectAs(t, newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512)), 1)
	defer s.close()
	s.io.must(ioCommand(nvme.OpWriteUncorrectable, 5, 1, 0), nil)
	store.setErr(errors.New("disk full"))
	s.admin.fails(formatCommand(1, 0, nvme.EraseNone), nil, nvme.StatusInternalError)
	store.setErr(nil)
	s.io.fails(ioCommand(nvme.OpRead, 5, 1, 0), make([]byte, 512), mediumError)
	s.admin.must(formatCommand(1, 0, nvme.EraseNone), nil)
	s.io.must(ioCommand(nvme.OpRead, 5, 1, 0), make([]byte, 512))
}

// TestFormatWaits: a Format that waited for the namespace is executed only if the host may still format it then.
func TestFormatWaits(t *testing.T) {
	read := ioCommand(nvme.OpRead, 0, 1, 0)
	for name, tc := range map[string]struct {
		want      nvme.Status
		meanwhile func(s, other *session)
	}{
		"nothing": {nvme.StatusSuccess, func(_, _ *session) {}},
		"a sanitize operation": {nvme.StatusSanitizeInProgress, func(_, other *session) {
			other.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
		}},
		"detached": {nvme.StatusInvalidNamespace | dnr, func(s, other *session) {
			other.admin.must(attachCommand(1, nvme.NSDetach), controllerList(s.cntlid))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			v := newTestVolume(1<<20, 4096)
			tg := newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Pool = newMemStore(), newMemPool(1<<20) }, v)
			s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
			defer s.close()
			defer other.close()
			v.setHold(true)
			held := other.io.start(read, make([]byte, 4096))
			format := s.admin.start(formatCommand(1, 0, 0), nil)
			tc.meanwhile(s, other)
			if format.answered() {
				t.Error("it doesn't wait")
			}
			v.release()
			held.wait()
			if st := format.wait().Status(); st&^nvme.StatusMore != tc.want {
				t.Errorf("status %#x, want %#x", uint16(st), uint16(tc.want))
			}
			other.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), make([]byte, nvme.PageSize))
			if tc.want != nvme.StatusSanitizeInProgress {
				other.io.must(read, make([]byte, 4096)) // the namespace is open again
			}
		})
	}
}

// TestFormatOfRemoved: a Format that waits for a namespace that is removed neither touches its volume nor keeps it.
func TestFormatOfRemoved(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
		v.setHold(true)
		read := other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
		waiting := []*fakeRequest{
			s.admin.start(formatCommand(1, 0, 0), nil),
			s.admin.start(setFeature(nvme.FeatWriteProtect, 1, writeProtected), nil),
		}
		removed := make(chan error, 1)
		go func() { removed <- tg.Subsystem(testNQN).RemoveNamespace(1) }()
		synctest.Wait()
		v.release()
		read.wait()
		if err := <-removed; err != nil {
			t.Error(err)
		}
		for _, r := range waiting {
			endsFused(t, "what waited for it", r, nvme.StatusInvalidNamespace|dnr)
		}
		if ops := v.ops(); !slices.Equal(ops, []blockdev.Op{blockdev.OpRead}) {
			t.Errorf("the volume saw %v", ops)
		}
		s.close()
		other.close()
	})
}

// TestFormatKeepsItsPlace: a write of CC that changes nothing doesn't end a Format that waits.
func TestFormatKeepsItsPlace(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
		v.setHold(true)
		read := other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
		format := s.admin.start(formatCommand(1, 0, 0), nil)
		s.admin.must(ccOn, nil)
		if format.answered() {
			t.Error("it has ended")
		}
		v.release()
		read.wait()
		if st := format.wait().Status(); !st.OK() {
			t.Errorf("status %#x", uint16(st))
		}
		s.close()
		other.close()
	})
}

// TestParkedGoFirst: all commands that arrived while an owner had a namespace alone are executed before the next
// owner's turn.
func TestParkedGoFirst(t *testing.T) {
	slowVolume(t, func(t *testing.T, tg *Target, v *testVolume) {
		s, next, other := connectAs(t, tg, 1), connectAs(t, tg, 2), connectAs(t, tg, 3)
		v.setHold(true)
		all := []*fakeRequest{s.admin.start(formatCommand(1, 0, 0), nil), next.admin.start(formatCommand(1, 0, 0), nil)}
		for range 3 {
			all = append(all, other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096)))
		}
		v.release()
		for _, r := range all {
			r.wait()
		}
		const zero, flush, read = blockdev.OpWriteZeroes, blockdev.OpFlush, blockdev.OpRead
		if ops := v.ops(); !slices.Equal(ops, []blockdev.Op{zero, flush, read, read, read, zero, flush}) {
			t.Errorf("the volume saw %v", ops)
		}
		s.close()
		next.close()
		other.close()
	})
}

// TestFormatAfterProtection: Format obeys write protection that was waiting for the namespace before it.
func TestFormatAfterProtection(t *testing.T) {
	v := newTestVolume(1<<20, 4096)
	tg := newTarget(t, v)
	s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer s.close()
	defer other.close()
	v.setHold(true)
	held := other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
	protect := other.admin.start(setFeature(nvme.FeatWriteProtect, 1, writeProtected), nil)
	format := s.admin.start(formatCommand(1, 0, 0), nil)
	if protect.answered() || format.answered() {
		t.Error("it doesn't wait")
	}
	v.release()
	held.wait()
	if st := protect.wait().Status(); !st.OK() {
		t.Errorf("write protection: status %#x", uint16(st))
	}
	if st := format.wait().Status() &^ nvme.StatusMore; st != nvme.StatusNamespaceWriteProtected|dnr {
		t.Errorf("status %#x", uint16(st))
	}
	if ops := v.ops(); slices.Contains(ops, blockdev.OpWriteZeroes) {
		t.Errorf("the volume saw %v", ops)
	}
}

// TestFormatAfterReservation: Format obeys a reservation that was being made when it arrived.
func TestFormatAfterReservation(t *testing.T) {
	store := newMemStore()
	v := newTestVolume(1<<20, 512)
	tg := newTargetWith(t, func(c *Config) { c.Store = store }, v)
	s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer s.close()
	defer other.close()
	other.io.must(command(func(c *nvme.Command) { c.SetResvRegister(1, nvme.ResvRegister, false, nvme.CPTPLSet) }),
		(&nvme.ResvKeys{Other: 22}).AppendTo(nil))
	acquire := acquireAs(2, nvme.ResvAcquire, nvme.ResvWriteExclusive, 22, 0, 0)
	store.mu.Lock() // it can't be saved yet
	acquired := other.io.start(acquire.cmd, acquire.keys.AppendTo(nil))
	format := s.admin.start(formatCommand(1, 0, 0), nil)
	store.mu.Unlock()
	acquired.wait()
	if st := format.wait().Status(); st&^nvme.StatusMore != resvConflict {
		t.Errorf("status %#x, want %#x", uint16(st), uint16(resvConflict))
	}
	if ops := v.ops(); len(ops) > 0 {
		t.Errorf("the volume was told %v", ops)
	}
}
