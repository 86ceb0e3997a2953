package target

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func copyCommand(to uint64, ctl nvme.IOControl, ranges ...nvme.CopyRange) (nvme.Command, []byte) {
	var b []byte
	for _, r := range ranges {
		b = r.AppendTo(b)
	}
	return command(func(c *nvme.Command) { c.SetCopy(1, to, len(ranges), ctl) }), b
}

// TestCopy: ranges are copied one after the other to their destination, however transport and volume respond.
func TestCopy(t *testing.T) {
	for mode, change := range transportModes {
		for _, late := range []bool{false, true} {
			t.Run(mode, func(t *testing.T) {
				v := newTestVolume(1<<20, 512)
				v.late = late
				rnd := rand.New(rand.NewPCG(1, 1))
				for i := range v.data[:512<<10] {
					v.data[i] = byte(rnd.Uint32())
				}
				before := bytes.Clone(v.data)
				s := connect(t, newTarget(t, v), testNQN, change)
				defer s.close()
				ranges := []nvme.CopyRange{{SLBA: 7, Blocks: 100}, {SLBA: 500, Blocks: 1}, {SLBA: 0, Blocks: 33}, {SLBA: 7, Blocks: 2}, {SLBA: 1500, Blocks: 3}}
				cmd, data := copyCommand(1024, nvme.ControlFUA, ranges...)
				if v := s.io.must(cmd, data).DW0(); v != 0 {
					t.Errorf("dword 0 is %d, though all ranges are copied", v)
				}
				want := before
				at := 1024 * 512
				for _, r := range ranges {
					at += copy(want[at:], want[r.SLBA*512:(r.SLBA+uint64(r.Blocks))*512])
				}
				if !bytes.Equal(v.data, want) {
					t.Error("the copy differs")
				}
				if v.fua == 0 {
					t.Error("FUA didn't reach the volume")
				}
			})
		}
	}
}

// TestCopyErrors: errors of source ranges, and which is the first range that isn't copied.
func TestCopyErrors(t *testing.T) {
	v := newTestVolume(64<<20, 512) // 131072 blocks
	s := connect(t, newTarget(t, v), testNQN)
	defer s.close()
	ok := nvme.CopyRange{SLBA: 0, Blocks: 8}
	many := make([]nvme.CopyRange, copyRanges+1)
	for i := range many {
		many[i] = ok
	}
	var huge []nvme.CopyRange
	for range 5 {
		huge = append(huge, nvme.CopyRange{SLBA: 0, Blocks: 32768})
	}
	for _, tc := range []struct {
		name   string
		to     uint64
		ranges []nvme.CopyRange
		status nvme.Status
		loc    uint16
		lba    uint64
	}{
		{"source out of range", 1000, []nvme.CopyRange{ok, {SLBA: 131071, Blocks: 2}}, nvme.StatusLBAOutOfRange, noLoc, 131072},
		{"source far out of range", 1000, []nvme.CopyRange{{SLBA: 1 << 63, Blocks: 1}}, nvme.StatusLBAOutOfRange, noLoc, 1 << 63},
		{"destination out of range", 131070, []nvme.CopyRange{ok}, nvme.StatusLBAOutOfRange, 40, 131072},
		{"destination far out of range", 1 << 40, []nvme.CopyRange{ok}, nvme.StatusLBAOutOfRange, 40, 1 << 40},
		{"long range", 70000, []nvme.CopyRange{ok, ok, {SLBA: 100, Blocks: 32769}}, nvme.StatusCommandSizeLimit, noLoc, 100},
		{"many ranges", 70000, many, nvme.StatusCommandSizeLimit, 48, 0},
		{"overlap", 1000, []nvme.CopyRange{ok, {SLBA: 995, Blocks: 6}}, nvme.StatusOverlappingRange, noLoc, 1000},
		{"overlap of the end", 1000, []nvme.CopyRange{{SLBA: 1007, Blocks: 6}, {SLBA: 5, Blocks: 2}}, nvme.StatusOverlappingRange, noLoc, 1007},
	} {
		cmd, data := copyCommand(tc.to, 0, tc.ranges...)
		cqe := s.io.fails(cmd, data, tc.status|dnr)
		if cqe.DW0() != 0 { // no data was written
			t.Errorf("%s: first range not copied %d, want 0", tc.name, cqe.DW0())
		}
		if e := lastError(s.admin); e.Location != tc.loc || e.LBA != tc.lba && tc.loc != 48 {
			t.Errorf("%s: location %#x LBA %d, want %#x and %d", tc.name, e.Location, e.LBA, tc.loc, tc.lba)
		}
	}
	cmd, data := copyCommand(0, 0, huge...)
	s.io.fails(cmd, data, nvme.StatusLBAOutOfRange|dnr)
	large := connect(t, newTarget(t, newTestVolume(256<<20, 512)), testNQN)
	cmd, data = copyCommand(200000, 0, huge...)
	large.io.fails(cmd, data, nvme.StatusCommandSizeLimit|dnr)
	cmd, data = copyCommand(200000, 0, huge[:4]...) // MCL
	large.io.must(cmd, data)
	large.close()
	cmd, data = copyCommand(1000, 0, ok, ok)
	s.io.fails(cmd, data[:32], nvme.StatusSGLLengthInvalid|dnr)
	cmd[nvme.CopyOffFormat] = 1
	s.io.fails(cmd, data, nvme.StatusInvalidField|dnr)
	if len(v.ops()) != 0 {
		t.Errorf("the volume was touched: %v", v.ops())
	}
	// As long, as close and as far as allowed.
	for to, r := range map[uint64]nvme.CopyRange{131064: ok, 0: {SLBA: 131064, Blocks: 8}, 8: ok, 32768: {SLBA: 65536, Blocks: 32768}} {
		cmd, data := copyCommand(to, 0, r)
		s.io.must(cmd, data)
	}
	cmd, data = copyCommand(8, 0, nvme.CopyRange{SLBA: 16, Blocks: 8})
	s.io.must(cmd, data)
	cmd, data = copyCommand(70000, 0, many[:copyRanges]...)
	s.io.must(cmd, data)
	v.fail = func(r *blockdev.Request) error {
		if r.Op == blockdev.OpWrite && r.Offset == 1008*512 {
			return &blockdev.OpError{Op: "write", Path: "test", Offset: r.Offset, Kind: blockdev.ErrMedium}
		}
		return nil
	}
	cmd, data = copyCommand(1000, 0, ok, ok, ok)
	if cqe := s.io.fails(cmd, data, nvme.StatusWriteFault); cqe.DW0() != 1 {
		t.Errorf("first range not copied %d, want 1", cqe.DW0())
	}
}

// TestCopyAborted: a Copy that is aborted also says how far it got.
func TestCopyAborted(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	s := connect(t, newTarget(t, v), testNQN)
	defer s.close()
	v.fail = func(r *blockdev.Request) error {
		v.hold = r.Op == blockdev.OpWrite && r.Offset == 1008*512 // in the second range
		return nil
	}
	ok := nvme.CopyRange{SLBA: 0, Blocks: 8}
	cmd, data := copyCommand(1000, 0, ok, ok, ok, ok)
	cmd.SetCID(77)
	long := s.io.start(cmd, data)
	<-v.arrived
	abort := s.admin.start(command(func(c *nvme.Command) { c.SetAbort(1, 77) }), nil)
	v.release()
	if cqe := long.wait(); cqe.Status().Code() != nvme.StatusAbortRequested || cqe.DW0() != 2 || abort.wait().DW0() != 0 {
		t.Errorf("status %#x, first range not copied %d, want 2", uint16(cqe.Status()), cqe.DW0())
	}
}

// TestCopyIdentified: the host is told of Copy and its limits, and of the fused operation.
func TestCopyIdentified(t *testing.T) {
	s := connect(t, newTarget(t, newTestVolume(1<<20, 4096)), testNQN)
	defer s.close()
	page := make([]byte, nvme.PageSize)
	var id nvme.IdentifyController
	s.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page)
	if err := id.Parse(page); err != nil || id.ONCS&nvme.ONCSCopy == 0 || id.CDFS != 1 || id.FUSES != 1 || id.ACWU != 15 {
		t.Errorf("ONCS %#x, CDFS %#x, FUSES %#x, ACWU %d, %v", id.ONCS, id.CDFS, id.FUSES, id.ACWU, err)
	}
	if page[534] != 1 || page[522] != 1 {
		t.Errorf("byte 534 is %d, byte 522 is %d", page[534], page[522])
	}
	var ns nvme.IdentifyNamespace
	s.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, 1, 0, 0) }), page)
	if err := ns.Parse(page); err != nil || ns.MSSRL != 4096 || ns.MCL != 16384 || ns.MSRC != 127 {
		t.Errorf("MSSRL %d, MCL %d, MSRC %d, %v", ns.MSSRL, ns.MCL, ns.MSRC, err)
	}
}
