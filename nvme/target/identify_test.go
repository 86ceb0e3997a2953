package target

import (
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

// TestIdentifyDeallocation: a namespace reports what its volume does with deallocated blocks.
func TestIdentifyDeallocation(t *testing.T) {
	for want, change := range map[nvme.DLFEAT]func(*blockdev.Info){
		0:                      func(i *blockdev.Info) { i.Discard = false },
		nvme.DLFEATWriteZeroes: func(i *blockdev.Info) { i.ZeroAfterDiscard = false },
		nvme.DLFEATWriteZeroes | nvme.DLFEATReadZero: func(*blockdev.Info) {},
	} {
		v := newTestVolume(1<<20, 512)
		change(&v.info)
		q := dial(t, newTarget(t, v))
		connectAdmin(q, testNQN, 0)
		page := make([]byte, nvme.PageSize)
		q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, 1, 0, 0) }), page)
		var ns nvme.IdentifyNamespace
		if err := ns.Parse(page); err != nil || ns.DLFEAT != want {
			t.Errorf("DLFEAT %#x, want %#x (%v)", ns.DLFEAT, want, err)
		}
		q.hangUp(nil)
	}
}
