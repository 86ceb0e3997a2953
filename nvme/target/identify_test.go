package target

import (
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestIdentifyCapabilities: what an I/O controller says that it can do is what its target can do, with a Store or a
// pool and without.
func TestIdentifyCapabilities(t *testing.T) {
	for name, tc := range map[string]struct {
		store *memStore
		pool  *memPool
	}{"bare": {}, "store": {newMemStore(), nil}, "pool": {newMemStore(), newMemPool(1 << 20)}} {
		tg := newTargetWith(t, func(c *Config) {
			if tc.store != nil {
				c.Store = tc.store
			}
			if tc.pool != nil {
				c.Subsystems[0].Pool = tc.pool
			}
		}, newTestVolume(1<<20, 512))
		q := dial(t, tg)
		connectAdmin(q, testNQN, 0)
		page := make([]byte, nvme.PageSize)
		q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page)
		var id nvme.IdentifyController
		if err := id.Parse(page); err != nil {
			t.Fatal(err)
		}
		if id.OACS&nvme.OACSFormat == 0 || (id.OACS&nvme.OACSNSManagement != 0) != (tc.pool != nil) || id.FNA != nvme.FNANoBroadcast {
			t.Errorf("%s: OACS %#x, FNA %#x", name, id.OACS, id.FNA)
		}
		const always = nvme.LPASMARTPerNS | nvme.LPAEffects | nvme.LPAExtendedData | nvme.LPASupported
		if id.LPA&always != always || (id.LPA&nvme.LPAPersistent != 0) != (tc.store != nil) || (id.PELS != 0) != (tc.store != nil) {
			t.Errorf("%s: LPA %#x, PELS %d", name, id.LPA, id.PELS)
		}
		if id.SANICAP != nvme.SANICAPBlock|nvme.SANICAPOverwrite|nvme.SANICAPUnmodified || id.NWPC != 1 || id.OFCS&nvme.OFCSDisconnect == 0 {
			t.Errorf("%s: SANICAP %#x, NWPC %d, OFCS %#x", name, id.SANICAP, id.NWPC, id.OFCS)
		}
		if (id.ANACAP&anaCapCreate != 0) != (tc.pool != nil) {
			t.Errorf("%s: ANACAP %#x", name, id.ANACAP)
		}
		var ns nvme.IdentifyNamespace
		q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, 1, 0, 0) }), page)
		if err := ns.Parse(page); err != nil || (ns.RESCAP&nvme.RESCAPPersist != 0) != (tc.store != nil) || ns.NSATTR != 0 {
			t.Errorf("%s: RESCAP %#x, NSATTR %#x, %v", name, ns.RESCAP, ns.NSATTR, err)
		}
		q.hangUp(nil)
	}
}

// TestIdentifyCapacity: the total capacity is a number of 128 bits: namespaces may have more than 16 EiB together.
func TestIdentifyCapacity(t *testing.T) {
	var volumes []blockdev.Volume
	for range 3 {
		v := newTestVolume(0, 512)
		v.info.Size = 7 << 60
		volumes = append(volumes, v)
	}
	q := dial(t, newTarget(t, volumes...))
	connectAdmin(q, testNQN, 0)
	page := make([]byte, nvme.PageSize)
	q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page)
	var id nvme.IdentifyController
	if err := id.Parse(page); err != nil || id.TNVMCAP != (nvme.Uint128{Lo: 5 << 60, Hi: 1}) || id.UNVMCAP != (nvme.Uint128{}) {
		t.Errorf("%v of %v, %v", id.UNVMCAP, id.TNVMCAP, err)
	}
	q.hangUp(nil)
}

// TestIdentifyDeallocation: a namespace reports what its volume does with deallocated blocks. That Write Zeroes takes
// DEAC is the same for all namespaces of a subsystem (NVM command set, DLFEAT of Identify Namespace).
func TestIdentifyDeallocation(t *testing.T) {
	var volumes []blockdev.Volume
	for _, change := range []func(*blockdev.Info){
		func(i *blockdev.Info) { i.Discard, i.ZeroAfterDiscard = false, false },
		func(i *blockdev.Info) { i.ZeroAfterDiscard = false },
		func(*blockdev.Info) {},
	} {
		v := newTestVolume(1<<20, 512)
		change(&v.info)
		volumes = append(volumes, v)
	}
	q := dial(t, newTarget(t, volumes...))
	connectAdmin(q, testNQN, 0)
	for i, want := range []nvme.DLFEAT{nvme.DLFEATWriteZeroes, nvme.DLFEATWriteZeroes, nvme.DLFEATWriteZeroes | nvme.DLFEATReadZero} {
		var ns nvme.IdentifyNamespace
		if err := ns.Parse(identifyPage(q, nvme.CNSNamespace, uint32(i+1))); err != nil || ns.DLFEAT != want {
			t.Errorf("namespace %d: DLFEAT %#x, want %#x (%v)", i+1, ns.DLFEAT, want, err)
		}
	}
	q.hangUp(nil)
}

// identifyPage reads a page about a namespace.
func identifyPage(c *fakeConn, cns nvme.CNS, nsid uint32) []byte {
	c.t.Helper()
	page := make([]byte, nvme.PageSize)
	c.must(command(func(cmd *nvme.Command) { cmd.SetIdentify(cns, nsid, 0, nvme.CSINVM) }), page)
	return page
}

// TestIdentifyPages: the pages about a namespace say what it was configured to be.
func TestIdentifyPages(t *testing.T) {
	uuid, nguid, eui64 := [16]byte{1}, [16]byte{2}, [8]byte{3}
	tg := newTargetWith(t, func(c *Config) {
		ns := &c.Subsystems[0].Namespaces[0]
		ns.UUID, ns.NGUID, ns.EUI64, ns.ANAGroup, ns.ReadOnly = uuid, nguid, eui64, 7, true
	}, newTestVolume(1<<20, 512))
	q := dial(t, tg)
	defer q.hangUp(nil)
	connectAdmin(q, testNQN, 0)
	var d nvme.NSDescriptors
	if err := d.Parse(identifyPage(q, nvme.CNSDescriptors, 1)); err != nil || d.UUID != uuid || d.NGUID != nguid || d.EUI64 != eui64 || !d.HasCSI || d.CSI != nvme.CSINVM {
		t.Errorf("descriptors %+v, %v", d, err)
	}
	var ns nvme.IdentifyNamespace
	if err := ns.Parse(identifyPage(q, nvme.CNSNamespace, 1)); err != nil || ns.NSZE != 2048 || ns.NCAP != 2048 || ns.NUSE != 2048 || ns.NGUID != nguid || ns.EUI64 != eui64 ||
		ns.ANAGRPID != 7 || ns.NMIC != nvme.NMICShared || ns.NSATTR != nvme.NSATTRWriteProtected || ns.NLBAF != 0 || ns.LBAF[0].LBADS != 9 {
		t.Errorf("namespace %+v, %v", ns, err)
	}
	var in nvme.IdentifyNamespaceIndependent
	if err := in.Parse(identifyPage(q, nvme.CNSIndependentNamespace, 1)); err != nil || in.NMIC != ns.NMIC || in.RESCAP != ns.RESCAP || in.RESCAP == 0 || in.ANAGRPID != 7 ||
		in.NSATTR != ns.NSATTR || in.NSTAT != nvme.NSTATReady {
		t.Errorf("independent of the command set %+v, %v", in, err)
	}
	var id nvme.IdentifyController
	if err := id.Parse(identifyPage(q, nvme.CNSController, 0)); err != nil || id.ELPE+1 != errorLogEntries || id.ACL+1 != maxAborts || id.AERL+1 != maxEventRequests ||
		id.KAS != 1 || id.FRMW != 1<<1|1 || id.MAXCMD != 128 || id.MDTS != 8 || id.ACWU != 15 {
		t.Errorf("controller %+v, %v", id, err)
	}
}

// TestIdentifyManaged: where hosts create namespaces, they see those that are attached to no controller, and all
// formats that there may be.
func TestIdentifyManaged(t *testing.T) {
	tg := newManaged(t, newMemPool(1<<20), newMemStore())
	s := connectAs(t, tg, 1)
	defer s.close()
	private := create(s.admin, 0)
	list := func(cns nvme.CNS) nvme.NSIDList {
		l, err := nvme.ParseNSIDList(identifyPage(s.admin, cns, 0))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := list(nvme.CNSCommandSetActiveNSIDs); !slices.Equal(l, nvme.NSIDList{1}) {
		t.Errorf("active: %v", l)
	}
	if l := list(nvme.CNSCommandSetAllocated); !slices.Equal(l, nvme.NSIDList{1, private}) {
		t.Errorf("allocated: %v", l)
	}
	for nsid, want := range map[uint32]nvme.NMIC{1: nvme.NMICShared, private: 0, nvme.NSIDAll: nvme.NMICShared} {
		cns := nvme.CNSAllocatedNamespace
		if nsid == nvme.NSIDAll {
			cns = nvme.CNSNamespace
		}
		var ns nvme.IdentifyNamespace
		if err := ns.Parse(identifyPage(s.admin, cns, nsid)); err != nil || ns.NMIC != want || ns.NLBAF != 1 || ns.LBAF[0].LBADS != 12 || ns.LBAF[1].LBADS != 9 ||
			ns.NSFEAT&nvme.NSFEATOptPerf == 0 {
			t.Errorf("namespace %#x: %+v, %v", nsid, ns, err)
		}
	}
	var common nvme.IdentifyNamespaceIndependent
	if err := common.Parse(identifyPage(s.admin, nvme.CNSIndependentNamespace, nvme.NSIDAll)); err != nil || common.NMIC != nvme.NMICShared || common.NSTAT != 0 {
		t.Errorf("what all namespaces have in common: %+v, %v", common, err)
	}
	identifyPage(s.admin, nvme.CNSCommandSetNamespace, nvme.NSIDAll)
	for _, nsid := range []uint32{1, private, MaxNSID} { // MaxNSID is not allocated
		identifyPage(s.admin, nvme.CNSCommandSetAllocatedNS, nsid)
	}
	for _, nsid := range []uint32{0, nvme.NSIDAll} {
		cmd := command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSCommandSetAllocatedNS, nsid, 0, nvme.CSINVM) })
		s.admin.fails(cmd, make([]byte, nvme.PageSize), nvme.StatusInvalidNamespace|dnr)
	}
}

// TestIdentifyGranularity: the sizes that I/O had best have are reported as 0-based counts of blocks, as far as fields
// of 16 bits can hold them.
func TestIdentifyGranularity(t *testing.T) {
	for _, tc := range []struct {
		phys, atomic int
		npwg, nawun  uint16
	}{
		{512, 1, 0, 0},
		{4096, 8, 7, 7},
		{256, 2, 0, 1}, // less than a block
		{64 << 20, 1 << 20, 0xffff, 0xffff},
	} {
		v := newTestVolume(1<<20, 512)
		v.info.PhysBlock, v.info.AtomicBlocks = tc.phys, tc.atomic
		q := dial(t, newTarget(t, v))
		connectAdmin(q, testNQN, 0)
		var ns nvme.IdentifyNamespace
		if err := ns.Parse(identifyPage(q, nvme.CNSNamespace, 1)); err != nil || ns.NPWG != tc.npwg || ns.NPWA != tc.npwg || ns.NPDG != tc.npwg || ns.NPDA != tc.npwg ||
			ns.NOWS != tc.npwg || ns.NAWUN != tc.nawun || ns.NAWUPF != tc.nawun || (ns.NSFEAT&nvme.NSFEATAtomic != 0) != (tc.atomic > 1) {
			t.Errorf("%d bytes, %d blocks: %+v, %v", tc.phys, tc.atomic, ns, err)
		}
		q.hangUp(nil)
	}
}
