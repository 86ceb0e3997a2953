package target

import (
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// lastError returns the newest entry of the error log.
func lastError(q *fakeConn) (e nvme.ErrorEntry) {
	q.t.Helper()
	page := make([]byte, nvme.ErrorEntrySize)
	q.must(getLog(nvme.GetLogPage{LID: nvme.LogError, Length: nvme.ErrorEntrySize}), page)
	if err := e.Parse(page); err != nil {
		q.t.Fatal(err)
	}
	return e
}

// TestErrorPlace: what the error log says about the place of an error, for commands that the test tables of the
// transports can't send.
func TestErrorPlace(t *testing.T) {
	v := newTestVolume(1<<20, 512) // 2048 blocks
	s := connect(t, newTarget(t, v), testNQN)
	defer s.close()
	check := func(what string, loc uint16, lba uint64) {
		t.Helper()
		if e := lastError(s.admin); e.Location != loc || e.LBA != lba {
			t.Errorf("%s: location %#x, LBA %d, want %#x and %d", what, e.Location, e.LBA, loc, lba)
		}
	}
	for _, psdt := range []byte{0, 0x80, 0xc0} {
		cmd := ioCommand(nvme.OpRead, 7, 1, 0)
		cmd.SetFlags(psdt)
		s.io.fails(cmd, make([]byte, 512), nvme.StatusInvalidField|dnr)
		check("PSDT", 1|6<<8, 7)
	}
	// The first block that differs, in data of one piece and of two.
	for _, blocks := range []int{4, 64} {
		data := make([]byte, blocks*512)
		data[len(data)-1] = 1
		s.io.fails(ioCommand(nvme.OpCompare, 100, uint32(blocks), 0), data, nvme.StatusCompareFailure|dnr)
		check("Compare", noLoc, 100+uint64(blocks)-1)
	}
	// The first range of a Dataset Management that is out of bounds.
	b := nvme.DSMRange{SLBA: 3000, Blocks: 1}.AppendTo(nvme.DSMRange{Blocks: 1}.AppendTo(nil))
	s.io.fails(command(func(c *nvme.Command) { c.SetDSM(1, 2, nvme.DSMDeallocate) }), b, nvme.StatusLBAOutOfRange|dnr)
	check("Dataset Management", noLoc, 3000)
	// The offset at which the volume says that it failed.
	v.setFail(&blockdev.OpError{Op: "read", Path: "test", Offset: 37 * 512, Kind: blockdev.ErrMedium})
	s.io.fails(ioCommand(nvme.OpRead, 30, 16, 0), make([]byte, 16*512), nvme.StatusUnrecoveredRead)
	check("medium error", noLoc, 37)
}

// TestErrorOfFabrics: the entry of a Fabrics command names no namespace, and no blocks.
func TestErrorOfFabrics(t *testing.T) {
	s := connect(t, newTarget(t, newTestVolume(1<<20, 512)), testNQN)
	defer s.close()
	cmd := command(func(c *nvme.Command) { c.SetDisconnect(); c.SetCDW(10, 1) }) // a Disconnect has its record format there
	s.io.fails(cmd, nil, nvme.StatusConnectFormat|dnr)
	if e := lastError(s.admin); e.SQID != 1 || e.NSID != 0 || e.LBA != 0 || e.Location != offCDW10 {
		t.Errorf("%+v", e)
	}
	for _, q := range []*fakeConn{s.admin, s.io} { // a Connect that fails has no entry
		cqe := q.do(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN))
		if st := cqe.Status(); st != nvme.StatusCommandSequence|dnr {
			t.Errorf("a Connect too many: status %#x", uint16(st))
		}
	}
	if e := lastError(s.admin); e.Count != 1 {
		t.Errorf("%+v", e)
	}
}

// TestErrorsOfReset: a reset empties the log, and the numbers of later errors continue (NVMe base, "Error
// Information").
func TestErrorsOfReset(t *testing.T) {
	c := dial(t, newTarget(t))
	connectAdmin(c, testNQN, 0)
	fail := func() {
		c.fails(getLog(nvme.GetLogPage{LID: 0x42, Length: 4}), make([]byte, 4), nvme.StatusInvalidLogPage|dnr)
	}
	entries := func() (out []uint64) {
		page := make([]byte, 4*nvme.ErrorEntrySize)
		c.must(getLog(nvme.GetLogPage{LID: nvme.LogError, Length: uint32(len(page))}), page)
		for ; len(page) > 0; page = page[nvme.ErrorEntrySize:] {
			var e nvme.ErrorEntry
			if err := e.Parse(page); err != nil {
				t.Fatal(err)
			}
			out = append(out, e.Count)
		}
		return out
	}
	for range 2 {
		fail()
	}
	if got := entries(); !slices.Equal(got, []uint64{2, 1, 0, 0}) {
		t.Errorf("errors %v before", got)
	}
	c.must(ccOff, nil)
	c.must(ccOn, nil)
	if got := entries(); !slices.Equal(got, make([]uint64, 4)) {
		t.Errorf("errors %v after the reset", got)
	}
	fail()
	if got := entries(); !slices.Equal(got, []uint64{3, 0, 0, 0}) {
		t.Errorf("errors %v in the end", got)
	}
	c.hangUp(nil)
}

// TestSMARTOfNamespace: the health log of one namespace counts only the commands to it.
func TestSMARTOfNamespace(t *testing.T) {
	s := connect(t, newTarget(t, newTestVolume(1<<20, 512), newTestVolume(1<<20, 512)), testNQN)
	defer s.close()
	data := make([]byte, 512)
	for range 2 {
		s.io.must(ioCommand(nvme.OpWrite, 0, 1, 0), data)
	}
	write := ioCommand(nvme.OpWrite, 0, 1, 0)
	write.SetNSID(2)
	s.io.must(write, data)
	for nsid, want := range map[uint32]uint64{0: 3, 1: 2, 2: 1, nvme.NSIDAll: 3} {
		page := make([]byte, nvme.SMARTLogSize)
		s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogSMART, NSID: nsid, Length: nvme.SMARTLogSize}), page)
		var p nvme.SMARTLog
		if err := p.Parse(page); err != nil || p.HostWrites.Uint64() != want {
			t.Errorf("NSID %#x: %d writes, want %d (%v)", nsid, p.HostWrites.Uint64(), want, err)
		}
	}
}

// TestSMARTCounts: Compare and Verify read data; Compare counts as a read command as well.
func TestSMARTCounts(t *testing.T) {
	s := connect(t, newTarget(t, newTestVolume(4<<20, 512)), testNQN)
	defer s.close()
	data := make([]byte, 512_000)
	s.io.must(ioCommand(nvme.OpCompare, 0, 1000, 0), data)
	s.io.must(ioCommand(nvme.OpVerify, 0, 1000, 0), nil)
	s.io.must(ioCommand(nvme.OpRead, 0, 1000, 0), data)
	s.io.must(ioCommand(nvme.OpWrite, 0, 1000, 0), data)
	s.io.must(ioCommand(nvme.OpWriteZeroes, 0, 1000, 0), nil)
	page := make([]byte, nvme.SMARTLogSize)
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogSMART, NSID: nvme.NSIDAll, Length: nvme.SMARTLogSize}), page)
	var p nvme.SMARTLog
	if err := p.Parse(page); err != nil {
		t.Fatal(err)
	}
	got := [4]uint64{p.DataUnitsRead.Uint64(), p.HostReads.Uint64(), p.DataUnitsWritten.Uint64(), p.HostWrites.Uint64()}
	if want := [4]uint64{3, 2, 1, 1}; got != want {
		t.Errorf("units read, reads, units written, writes: %v, want %v", got, want)
	}
}
