package target

import (
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
	early.admin.must(setProperty(nvme.PropCC, 0), nil)
	early.admin.must(ccOn, nil)
	identify(early.admin)
	if tg.controller(early.cntlid).noCache.Load() {
		t.Error("a host that was told of the cache after a reset still counts as one that knows of none")
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
