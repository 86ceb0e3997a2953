package target

import (
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestVolatileCache: hosts are told of a cache if and only if a volume has one, and those that were told of none lose
// nothing when one is added later.
func TestVolatileCache(t *testing.T) {
	tg := newTarget(t, memVolume(t, 1<<20, 4096))
	identify := func(q *fakeConn) (id nvme.IdentifyController) {
		page := make([]byte, nvme.PageSize)
		q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page)
		if err := id.Parse(page); err != nil {
			t.Fatal(err)
		}
		return id
	}
	feature := command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatVolatileWC, nvme.SELCurrent, 0, 0) })
	early := connect(t, tg, testNQN)
	defer early.close()
	if id := identify(early.admin); id.VWC&nvme.VWCPresent != 0 || id.AWUN != 0 || id.AWUPF != 0 {
		t.Errorf("memory: VWC %#x AWUN %d AWUPF %d", id.VWC, id.AWUN, id.AWUPF)
	}
	early.admin.fails(feature, nil, nvme.StatusInvalidField|dnr)

	v := newTestVolume(1<<20, 4096)
	if _, err := tg.Subsystem(testNQN).AddNamespace(NamespaceConfig{Volume: v}); err != nil {
		t.Fatal(err)
	}
	late := connect(t, tg, testNQN)
	defer late.close()
	if id := identify(late.admin); id.VWC&nvme.VWCPresent == 0 {
		t.Errorf("with a cache: VWC %#x", id.VWC)
	}
	late.admin.must(feature, nil)
	identify(early.admin) // as a user may ask, whose kernel still sends no Flush

	for _, x := range []struct {
		s   *session
		fua int
	}{{early, 2}, {late, 0}} {
		v.fua = 0
		for _, op := range []nvme.Opcode{nvme.OpWrite, nvme.OpWriteZeroes} {
			c := ioCommand(op, 0, 1, 0)
			c.SetNSID(2)
			var data []byte
			if op == nvme.OpWrite {
				data = make([]byte, 4096)
			}
			x.s.io.must(c, data)
		}
		if v.fua != x.fua {
			t.Errorf("%d of 2 writes went through the cache, want %d", v.fua, x.fua)
		}
	}
	// A discard is durable, too: the blocks don't have their old data again after a power failure.
	for s, want := range map[*session][]blockdev.Op{
		early: {blockdev.OpDiscard, blockdev.OpDiscard, blockdev.OpFlush}, late: {blockdev.OpDiscard, blockdev.OpDiscard},
	} {
		v.log = nil
		discard, ranges := dsm(3, nvme.DSMRange{Blocks: 1}, nvme.DSMRange{SLBA: 4, Blocks: 1}, nvme.DSMRange{SLBA: 8})
		discard.SetNSID(2)
		s.io.must(discard, ranges)
		if got := v.ops(); !slices.Equal(got, want) {
			t.Errorf("a discard does %v, want %v", got, want)
		}
	}
	v.log = nil
	nothing, ranges := dsm(1, nvme.DSMRange{SLBA: 8})
	nothing.SetNSID(2)
	early.io.must(nothing, ranges)
	if got := v.ops(); len(got) > 0 {
		t.Errorf("a discard of nothing does %v", got)
	}
	failFlush(v)
	discard, ranges := dsm(1, nvme.DSMRange{Blocks: 1})
	discard.SetNSID(2)
	early.io.fails(discard, ranges, nvme.StatusWriteFault|dnr) // repeated, it would succeed, and the loss be forgotten
	early.io.must(discard, ranges)
	// The volume tells the loss to another host's Flush, which it comes before.
	other := connectAs(t, tg, 1)
	defer other.close()
	flush := flushOf(2)
	failFlush(v)
	other.io.fails(flush, nil, nvme.StatusWriteFault|dnr)
	early.io.fails(discard, ranges, nvme.StatusWriteFault|dnr)
	early.io.must(discard, ranges)
	early.admin.must(setProperty(nvme.PropCC, 0), nil)
	early.admin.must(ccOn, nil)
	identify(early.admin)
	if tg.controller(early.cntlid).noCache.Load() {
		t.Error("a host that was told of the cache after a reset still counts as one that knows of none")
	}
}

// viewable is a testVolume whose reads need no copy.
type viewable struct{ *testVolume }

func (v viewable) Regions() []*blockdev.Region { return []*blockdev.Region{{Mem: v.data}} }

func (v viewable) View(segs []blockdev.Segment, off, n int64) ([]blockdev.Segment, blockdev.ViewToken, error) {
	return append(segs, blockdev.Segment{Region: v.Regions()[0], Bytes: v.data[off : off+n]}), 1, nil
}

func (v viewable) Release(blockdev.ViewToken) {}

// TestDurableReads: what a command with FUA reads is durable when it completes, whoever wrote it (NVM command set, FUA
// of Read, Compare and Verify).
func TestDurableReads(t *testing.T) {
	inMemory := func(v *testVolume) blockdev.Volume { return viewable{v} }
	for _, x := range []struct {
		name   string
		op     nvme.Opcode
		volume func(*testVolume) blockdev.Volume
		reads  []blockdev.Op
	}{
		{"Read", nvme.OpRead, nil, []blockdev.Op{blockdev.OpRead}},
		{"Read of memory", nvme.OpRead, inMemory, nil},
		{"Compare", nvme.OpCompare, nil, []blockdev.Op{blockdev.OpRead, blockdev.OpRead}},
		{"Verify", nvme.OpVerify, nil, []blockdev.Op{blockdev.OpRead, blockdev.OpRead}},
	} {
		t.Run(x.name, func(t *testing.T) {
			v := newTestVolume(1<<20, 4096)
			var volume blockdev.Volume = v
			if x.volume != nil {
				volume = x.volume(v)
			}
			s := connect(t, newTarget(t, volume), testNQN)
			defer s.close()
			var data []byte
			if x.op != nvme.OpVerify {
				data = make([]byte, 2*pieceSize)
			}
			plain, durable := ioCommand(x.op, 0, 2*pieceSize/4096, 0), ioCommand(x.op, 0, 2*pieceSize/4096, nvme.ControlFUA)
			s.io.must(plain, data)
			if !slices.Equal(v.ops(), x.reads) {
				t.Errorf("without FUA: %v", v.ops())
			}
			v.log = nil
			s.io.must(durable, data)
			if want := append(slices.Clone(x.reads), blockdev.OpFlush); !slices.Equal(v.ops(), want) {
				t.Errorf("with FUA: %v, want %v", v.ops(), want)
			}

			failFlush(v)
			for range 2 { // the loss isn't made good by another flush
				s.io.fails(durable, data, nvme.StatusWriteFault|dnr)
			}
			s.io.fails(flushOf(1), nil, nvme.StatusWriteFault|dnr) // it covers more than those blocks
			s.io.must(flushOf(1), nil)
			s.io.must(durable, data)
		})
	}
}

// TestDurableReadUncached: FUA of a Read costs nothing if a completed write is durable anyway.
func TestDurableReadUncached(t *testing.T) {
	v := newTestVolume(1<<20, 4096)
	v.info.VolatileCache = false
	s := connect(t, newTarget(t, v), testNQN)
	defer s.close()
	s.io.must(ioCommand(nvme.OpRead, 0, 1, nvme.ControlFUA), make([]byte, 4096))
	if want := []blockdev.Op{blockdev.OpRead}; !slices.Equal(v.ops(), want) {
		t.Errorf("%v, want %v", v.ops(), want)
	}
}

// TestAtomicUnits: hosts are told how many blocks are written atomically, normally and on power failure, as the volume
// reports; AWUN and AWUPF are the one block that NVMe takes for granted.
func TestAtomicUnits(t *testing.T) {
	var volumes []blockdev.Volume
	for _, atomic := range []int{0, 1, 8, 1 << 20} {
		v := newTestVolume(1<<20, 4096)
		v.info.AtomicBlocks = atomic
		volumes = append(volumes, v)
	}
	s := connect(t, newTarget(t, volumes...), testNQN)
	defer s.close()
	page := make([]byte, nvme.PageSize)
	var c nvme.IdentifyController
	s.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page)
	if err := c.Parse(page); err != nil || c.AWUN != 0 || c.AWUPF != 0 {
		t.Errorf("AWUN %d, AWUPF %d, %v", c.AWUN, c.AWUPF, err)
	}
	for i, want := range []struct {
		own   bool
		units uint16
	}{{false, 0}, {false, 0}, {true, 7}, {true, 1<<16 - 1}} {
		var n nvme.IdentifyNamespace
		s.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, uint32(i+1), 0, 0) }), page)
		if err := n.Parse(page); err != nil {
			t.Fatal(err)
		}
		if own := n.NSFEAT&nvme.NSFEATAtomic != 0; own != want.own || n.NAWUN != want.units || n.NAWUPF != want.units {
			t.Errorf("%d blocks: NSFEAT %#x NAWUN %d NAWUPF %d", volumes[i].Info().AtomicBlocks, n.NSFEAT, n.NAWUN, n.NAWUPF)
		}
	}
}
