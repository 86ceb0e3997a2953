package target

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// memPool is a Pool in memory that outlives targets.
type memPool struct {
	mu       sync.Mutex
	capacity uint64
	volumes  map[string]*testVolume
	open     map[string]bool
	err      error
}

func newMemPool(capacity uint64) *memPool {
	return &memPool{capacity: capacity, volumes: map[string]*testVolume{}, open: map[string]bool{}}
}

// pooled is an open volume of a memPool.
type pooled struct {
	*testVolume
	close func() error
}

func (v *pooled) Close() error { return v.close() }

func (p *memPool) Capacity() uint64 { return p.capacity }

func (p *memPool) Create(name string, size int64, blockSize int) (blockdev.Volume, error) {
	p.mu.Lock()
	if p.err != nil || p.volumes[name] != nil {
		p.mu.Unlock()
		return nil, errors.Join(p.err, errors.New("exists"))
	}
	p.volumes[name] = newTestVolume(size, blockSize)
	p.mu.Unlock()
	return p.Open(name, size, blockSize)
}

func (p *memPool) Open(name string, size int64, blockSize int) (blockdev.Volume, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.volumes[name]
	if v == nil || p.open[name] || v.info.Size != size || v.info.BlockSize != blockSize {
		return nil, errors.New("there is no such volume, or it is open")
	}
	p.open[name] = true
	return &pooled{v, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.open[name] = false
		return nil
	}}, nil
}

func (p *memPool) Remove(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.volumes[name] == nil {
		return fs.ErrNotExist
	}
	if p.open[name] {
		return errors.New("it is open")
	}
	delete(p.volumes, name)
	return nil
}

func (p *memPool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.volumes)
}

// newManaged makes a target with a namespace of the operator whose hosts may create more.
func newManaged(t *testing.T, pool *memPool, store *memStore) *Target {
	t.Helper()
	return newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Pool = store, pool }, newTestVolume(1<<20, 4096))
}

func newMemStore() *memStore { return &memStore{kept: map[string][]byte{}} }

func createCommand() nvme.Command {
	return command(func(c *nvme.Command) { c.SetNSCreate(nvme.CSINVM) })
}

func deleteCommand(nsid uint32) nvme.Command {
	return command(func(c *nvme.Command) { c.SetNSDelete(nsid) })
}

func attachCommand(nsid uint32, a nvme.NSAction) nvme.Command {
	return command(func(c *nvme.Command) { c.SetNSAttachment(nsid, a) })
}

func controllerList(ids ...uint16) []byte { return nvme.ControllerList(ids).AppendTo(nil) }

// create makes a host create a namespace of 16 blocks of 512 bytes.
func create(c *fakeConn, nmic nvme.NMIC) uint32 {
	spec := nvme.NamespaceSpec{NSZE: 16, NCAP: 16, FLBAS: 1, NMIC: nmic}
	return c.must(createCommand(), spec.AppendTo(nil)).DW0()
}

func nsidsOf(c *fakeConn, cns nvme.CNS) nvme.NSIDList {
	c.t.Helper()
	b := make([]byte, nvme.PageSize)
	c.must(command(func(cmd *nvme.Command) { cmd.SetIdentify(cns, 0, 0, 0) }), b)
	l, err := nvme.ParseNSIDList(b)
	if err != nil {
		c.t.Fatal(err)
	}
	return l
}

func controllersOf(c *fakeConn, nsid uint32) nvme.ControllerList {
	c.t.Helper()
	b := make([]byte, nvme.PageSize)
	c.must(command(func(cmd *nvme.Command) { cmd.SetIdentify(nvme.CNSAttachedControllers, nsid, 0, 0) }), b)
	l, err := nvme.ParseControllerList(b)
	if err != nil {
		c.t.Fatal(err)
	}
	return l
}

// TestManagementCapabilities: the controller reports that hosts may create namespaces, and their sizes and formats.
func TestManagementCapabilities(t *testing.T) {
	tg := newManaged(t, newMemPool(1<<20), newMemStore())
	a := connectAs(t, tg, 1)
	defer a.close()
	var id nvme.IdentifyController
	page := make([]byte, nvme.PageSize)
	a.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page)
	if err := id.Parse(page); err != nil || id.OACS&nvme.OACSNSManagement == 0 || id.UNVMCAP != nvme.Uint128From(1<<20) || id.TNVMCAP != nvme.Uint128From(2<<20) {
		t.Errorf("controller: OACS %#x, %v of %v, %v", id.OACS, id.UNVMCAP, id.TNVMCAP, err)
	}
	var common nvme.IdentifyNamespace
	a.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, nvme.NSIDAll, 0, 0) }), page)
	if err := common.Parse(page); err != nil || common.NLBAF != 1 || common.LBAF[0].LBADS != 12 || common.LBAF[1].LBADS != 9 || common.NSZE != 0 ||
		common.DLFEAT != nvme.DLFEATWriteZeroes {
		t.Errorf("common capabilities %+v, DLFEAT %#x, %v", common.LBAF[:2], common.DLFEAT, err)
	}
	free := func(want uint64) {
		t.Helper()
		a.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page)
		if err := id.Parse(page); err != nil || id.UNVMCAP != nvme.Uint128From(want) || id.TNVMCAP != nvme.Uint128From(2<<20) {
			t.Errorf("%v of %v, %v; want %d", id.UNVMCAP, id.TNVMCAP, err, want)
		}
	}
	create(a.admin, nvme.NMICShared)
	free(1<<20 - 16*512)
	rest := nvme.NamespaceSpec{NSZE: 1<<11 - 16, NCAP: 1<<11 - 16, FLBAS: 1}
	nsid := a.admin.must(createCommand(), rest.AppendTo(nil)).DW0()
	free(0)
	a.admin.must(deleteCommand(nsid), nil)
	free(1<<20 - 16*512)

	effects := effectsOf(a.admin)
	const changes = nvme.EffectSupported | nvme.EffectInventoryChange
	if m, at := effects.Admin[nvme.OpNSManagement], effects.Admin[nvme.OpNSAttachment]; m&changes != changes || at&changes != changes {
		t.Errorf("effects %#x and %#x", m, at)
	}
}

// TestNamespaceManagement: hosts create, attach and detach namespaces; each controller has its own; the other
// controllers are told.
func TestNamespaceManagement(t *testing.T) {
	tg := newManaged(t, newMemPool(1<<20), newMemStore())
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	page := make([]byte, nvme.PageSize)
	nsid := create(a.admin, nvme.NMICShared)
	if nsid != FirstCreatedNSID {
		t.Errorf("NSID %d", nsid)
	}
	if l := nsidsOf(a.admin, nvme.CNSActiveNSIDs); !slices.Equal(l, nvme.NSIDList{1}) {
		t.Errorf("attached before anybody attached it: %v", l)
	}
	if l := nsidsOf(a.admin, nvme.CNSAllocatedNSIDs); !slices.Equal(l, nvme.NSIDList{1, nsid}) {
		t.Errorf("allocated %v", l)
	}
	var ns nvme.IdentifyNamespace
	a.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSAllocatedNamespace, nsid, 0, 0) }), page)
	if err := ns.Parse(page); err != nil || ns.NSZE != 16 || ns.BlockSize() != 512 || ns.FLBAS != 1 || ns.NMIC != nvme.NMICShared {
		t.Errorf("allocated namespace %+v, %v", ns.NSZE, err)
	}
	read := command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, nsid, 0, 1, 0) })
	data := make([]byte, 512)
	a.io.fails(read, data, nvme.StatusInvalidNamespace|nvme.StatusDNR)

	enableEvents(b.admin, nvme.AENNamespace)
	told := b.admin.start(asyncEvent(1), nil)
	a.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(a.cntlid))
	a.io.must(read, data)
	b.io.fails(read, data, nvme.StatusInvalidNamespace|nvme.StatusDNR)
	if told.answered() {
		t.Error("a host is told of what another's controller got")
	}
	if l := controllersOf(b.admin, nsid); !slices.Equal(l, nvme.ControllerList{a.cntlid}) {
		t.Errorf("attached to %v", l)
	}
	a.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(b.cntlid))
	if ev := nvme.AsyncEvent(told.wait().DW0()); ev != nvme.EventNamespaceChanged {
		t.Errorf("event %v", ev)
	}
	b.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogChangedNamespaces, Length: nvme.PageSize}), page)
	if l, err := nvme.ParseNSIDList(page); err != nil || !slices.Equal(l, nvme.NSIDList{nsid}) {
		t.Errorf("changed %v, %v", l, err)
	}
	b.io.must(command(func(c *nvme.Command) { c.SetIO(nvme.OpWrite, nsid, 3, 1, 0) }), bytes.Repeat([]byte{7}, 512))
	a.admin.must(attachCommand(1, nvme.NSDetach), controllerList(b.cntlid))
	if l := nsidsOf(b.admin, nvme.CNSActiveNSIDs); !slices.Equal(l, nvme.NSIDList{nsid}) {
		t.Errorf("attached %v", l)
	}
	for _, none := range []uint32{0, 1, MaxNSID, MaxNSID + 1} {
		b.io.fails(command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, none, 0, 1, 0) }), data, nvme.StatusInvalidNamespace|nvme.StatusDNR)
	}
}

// goodNamespace is one that can be created.
func goodNamespace() nvme.NamespaceSpec {
	return nvme.NamespaceSpec{NSZE: 1, NCAP: 1, NMIC: nvme.NMICShared}
}

// TestCreateRefused: what can't be created.
func TestCreateRefused(t *testing.T) {
	s := connectAs(t, newManaged(t, newMemPool(1<<20), newMemStore()), 1)
	defer s.close()
	create(s.admin, nvme.NMICShared)
	for _, tc := range []struct {
		name   string
		change func(*nvme.NamespaceSpec)
		status nvme.Status
	}{
		{"no such format", func(p *nvme.NamespaceSpec) { p.FLBAS = 2 }, nvme.StatusInvalidFormat},
		{"format 16", func(p *nvme.NamespaceSpec) { p.FLBAS = 1 << 5 }, nvme.StatusInvalidFormat},
		{"protection", func(p *nvme.NamespaceSpec) { p.DPS = 1 }, nvme.StatusInvalidFormat},
		{"size 0", func(p *nvme.NamespaceSpec) { p.NSZE, p.NCAP = 0, 0 }, nvme.StatusInvalidField},
		{"NMIC 2", func(p *nvme.NamespaceSpec) { p.NMIC = 2 }, nvme.StatusInvalidField},
		{"NVM set", func(p *nvme.NamespaceSpec) { p.NVMSETID = 1 }, nvme.StatusInvalidField},
		{"endurance group", func(p *nvme.NamespaceSpec) { p.ENDGID = 1 }, nvme.StatusInvalidField},
		{"thin", func(p *nvme.NamespaceSpec) { p.NSZE = 2 }, nvme.StatusThinNotSupported},
		{"too large", func(p *nvme.NamespaceSpec) { p.NSZE, p.NCAP = 256, 256 }, nvme.StatusInsufficientCapacity},
		{"absurdly large", func(p *nvme.NamespaceSpec) { p.NSZE, p.NCAP = 1<<63, 1<<63 }, nvme.StatusInsufficientCapacity},
		{"ANA group 129", func(p *nvme.NamespaceSpec) { p.ANAGRPID = 129 }, nvme.StatusANAGroupInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := goodNamespace()
			tc.change(&spec)
			s.admin.fails(createCommand(), spec.AppendTo(nil), tc.status|nvme.StatusDNR)
		})
	}
}

// TestNamespaceManagementErrors: what can't be deleted, attached or detached.
func TestNamespaceManagementErrors(t *testing.T) {
	s := connectAs(t, newManaged(t, newMemPool(1<<20), newMemStore()), 1)
	defer s.close()
	nsid := create(s.admin, nvme.NMICShared)
	for _, tc := range []struct {
		name   string
		nsid   uint32
		action nvme.NSAction
		list   []byte
		status nvme.Status
	}{
		{"empty list", nsid, nvme.NSAttach, controllerList(), nvme.StatusInvalidControllerList},
		{"no such controller", nsid, nvme.NSAttach, controllerList(s.cntlid + 1), nvme.StatusInvalidControllerList},
		{"twice in the list", nsid, nvme.NSAttach, controllerList(s.cntlid, s.cntlid), nvme.StatusInvalidControllerList},
		{"list of 65535", nsid, nvme.NSAttach, bytes.Repeat([]byte{0xff}, nvme.PageSize), nvme.StatusInvalidControllerList},
		{"detached already", nsid, nvme.NSDetach, controllerList(s.cntlid), nvme.StatusNamespaceNotAttached},
		{"attached already", 1, nvme.NSAttach, controllerList(s.cntlid), nvme.StatusNamespaceAlreadyAttached},
		{"no such namespace", 700, nvme.NSAttach, controllerList(s.cntlid), nvme.StatusInvalidNamespace},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.admin.fails(attachCommand(tc.nsid, tc.action), tc.list, tc.status|nvme.StatusDNR)
		})
	}
	s.admin.fails(deleteCommand(1), nil, nvme.StatusOperationDenied|nvme.StatusDNR)
	s.admin.fails(deleteCommand(700), nil, nvme.StatusInvalidNamespace|nvme.StatusDNR)
	s.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(s.cntlid))
	s.admin.must(setFeature(nvme.FeatWriteProtect, nsid, writeProtected), nil)
	s.admin.fails(deleteCommand(nsid), nil, nvme.StatusNamespaceWriteProtected|nvme.StatusDNR)

	plain := connect(t, newTarget(t, newTestVolume(1<<20, 512)), testNQN)
	defer plain.close()
	good := goodNamespace()
	plain.admin.fails(createCommand(), good.AppendTo(nil), nvme.StatusInvalidOpcode|nvme.StatusDNR)
	plain.admin.fails(attachCommand(1, nvme.NSDetach), controllerList(plain.cntlid), nvme.StatusInvalidOpcode|nvme.StatusDNR)
}

// TestManagementErrorDetail: the error log says which entry of a controller list is wrong, by its offset, and how much
// capacity a namespace would have needed ("Namespace Attachment command" and "Namespace Management command", Command
// Specific Information).
func TestManagementErrorDetail(t *testing.T) {
	tg := newManaged(t, newMemPool(1<<20), newMemStore())
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	nsid := create(a.admin, nvme.NMICShared)
	detail := func(want uint64) {
		t.Helper()
		if e := lastError(a.admin); e.Specific != want {
			t.Errorf("status %#x: command specific information %d, want %d", uint16(e.Status()), e.Specific, want)
		}
	}
	low, high := min(a.cntlid, b.cntlid), max(a.cntlid, b.cntlid)
	a.admin.fails(attachCommand(nsid, nvme.NSAttach), controllerList(low, high, high+1), nvme.StatusInvalidControllerList|dnr)
	detail(6)
	a.admin.fails(attachCommand(nsid, nvme.NSAttach), controllerList(low, low), nvme.StatusInvalidControllerList|dnr)
	detail(4)
	a.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(low))
	a.admin.fails(attachCommand(nsid, nvme.NSDetach), controllerList(low, high), nvme.StatusNamespaceNotAttached|dnr)
	detail(4)
	a.admin.fails(attachCommand(nsid, nvme.NSAttach), controllerList(low, high), nvme.StatusNamespaceAlreadyAttached|dnr)
	detail(2)
	private := create(a.admin, 0)
	a.admin.fails(attachCommand(private, nvme.NSAttach), controllerList(low, high), nvme.StatusNamespacePrivate|dnr)
	detail(4)
	a.admin.must(attachCommand(private, nvme.NSAttach), controllerList(low))
	a.admin.fails(attachCommand(private, nvme.NSAttach), controllerList(high), nvme.StatusNamespacePrivate|dnr)
	detail(2)
	large := nvme.NamespaceSpec{NSZE: 1 << 20, NCAP: 1 << 20, FLBAS: 1}
	a.admin.fails(createCommand(), large.AppendTo(nil), nvme.StatusInsufficientCapacity|dnr)
	detail(512 << 20)
	a.admin.fails(deleteCommand(700), nil, nvme.StatusInvalidNamespace|dnr)
	detail(0)
}

// TestNamespaceManagementFields: fields of the commands that are wrong.
func TestNamespaceManagementFields(t *testing.T) {
	s := connectAs(t, newManaged(t, newMemPool(1<<20), newMemStore()), 1)
	defer s.close()
	good := goodNamespace()
	spec, list := good.AppendTo(nil), controllerList(s.cntlid)
	with := func(cmd nvme.Command, change func(*nvme.Command)) nvme.Command {
		change(&cmd)
		return cmd
	}
	for name, tc := range map[string]struct {
		cmd    nvme.Command
		data   []byte
		status nvme.Status
		at     uint16
	}{
		"SEL 2 of management": {with(createCommand(), func(c *nvme.Command) { c.SetCDW(10, 2) }), spec, nvme.StatusInvalidField, 40},
		"SEL 2 of attachment": {attachCommand(1, 2), list, nvme.StatusInvalidField, 40},
		"NSID to create":      {with(createCommand(), func(c *nvme.Command) { c.SetNSID(1) }), spec, nvme.StatusInvalidField, 4},
		"another command set": {command(func(c *nvme.Command) { c.SetNSCreate(nvme.CSIZonedNS) }), spec, nvme.StatusCommandSetNotSupported, 47},
		"short specification": {createCommand(), spec[:512], nvme.StatusSGLLengthInvalid, 24},
		"short list":          {attachCommand(1, nvme.NSDetach), list[:512], nvme.StatusSGLLengthInvalid, 24},
		"no namespace 0":      {deleteCommand(0), nil, nvme.StatusInvalidNamespace, 4},
	} {
		s.admin.fails(tc.cmd, tc.data, tc.status|nvme.StatusDNR)
		var e nvme.ErrorEntry
		page := make([]byte, nvme.ErrorEntrySize)
		s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogError, Length: nvme.ErrorEntrySize}), page)
		if err := e.Parse(page); err != nil || e.Location != tc.at {
			t.Errorf("%s: at byte %d, want %d (%v)", name, e.Location, tc.at, err)
		}
	}
	if l := nsidsOf(s.admin, nvme.CNSAllocatedNSIDs); !slices.Equal(l, nvme.NSIDList{1}) {
		t.Errorf("allocated %v", l)
	}
}

// TestManagementWhileOneIsUsed: a namespace that a host deletes is removed when nothing uses its volume, which may
// hang, any more; other hosts create and attach namespaces meanwhile, but don't get its space in the pool.
func TestManagementWhileOneIsUsed(t *testing.T) {
	pool := newMemPool(1<<20 + 2*16*512)
	tg := newManaged(t, pool, newMemStore())
	a, b := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer a.close()
	defer b.close()
	nsid := create(a.admin, nvme.NMICShared)
	a.admin.must(attachCommand(nsid, nvme.NSAttach), controllerList(a.cntlid))
	var hangs *testVolume
	for _, hangs = range pool.volumes {
		hangs.setHold(true)
	}
	defer hangs.release()
	ns := tg.Subsystem(testNQN).namespace(nsid)
	read := a.io.start(command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, nsid, 0, 1, 0) }), make([]byte, 512))
	deleted := a.admin.start(deleteCommand(nsid), nil)
	if !soon.Until(func() bool { return ns.state.Load()&nsRemoved != 0 }) {
		t.Fatal("not removed")
	}
	other := create(b.admin, nvme.NMICShared)
	b.admin.must(attachCommand(other, nvme.NSAttach), controllerList(b.cntlid))
	b.io.must(command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, other, 0, 1, 0) }), make([]byte, 512))
	spec := nvme.NamespaceSpec{NSZE: 1<<11 + 1, NCAP: 1<<11 + 1, FLBAS: 1, NMIC: nvme.NMICShared} // one block more than is left
	b.admin.fails(createCommand(), spec.AppendTo(nil), nvme.StatusInsufficientCapacity|nvme.StatusDNR)
	if deleted.answered() {
		t.Error("deleted while its volume is used")
	}
	hangs.release()
	read.wait()
	if st := deleted.wait().Status(); !st.OK() {
		t.Errorf("Delete: status %#x", uint16(st))
	}
	b.admin.must(createCommand(), spec.AppendTo(nil))
	if n := pool.count(); n != 2 {
		t.Errorf("%d volumes", n)
	}
}

// TestManagementWhileSanitizing: no namespaces are created, deleted or attached while all are being erased.
func TestManagementWhileSanitizing(t *testing.T) {
	v := newTestVolume(1<<20, 4096)
	tg := newTargetWith(t, func(c *Config) { c.Store, c.Subsystems[0].Pool = newMemStore(), newMemPool(1<<20) }, v)
	s := connectAs(t, tg, 1)
	defer s.close()
	nsid := create(s.admin, nvme.NMICShared)
	v.setHold(true)
	told := s.admin.start(asyncEvent(1), nil)
	s.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
	<-v.arrived
	good := goodNamespace()
	s.admin.fails(createCommand(), good.AppendTo(nil), nvme.StatusSanitizeInProgress)
	s.admin.fails(deleteCommand(nsid), nil, nvme.StatusSanitizeInProgress)
	s.admin.fails(attachCommand(nsid, nvme.NSAttach), controllerList(s.cntlid), nvme.StatusSanitizeInProgress)
	v.release()
	sanitized(t, told)
	s.admin.must(deleteCommand(nsid), nil)
}

// recorder is a Store and a Pool that record the state before each change: what a crash at that moment leaves.
type recorder struct {
	*memStore
	*memPool
	mu      sync.Mutex
	moments []moment
}

type moment struct {
	kept    map[string][]byte
	volumes map[string]*testVolume
}

func (r *recorder) record() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memStore.mu.Lock()
	r.memPool.mu.Lock()
	r.moments = append(r.moments, moment{maps.Clone(r.kept), maps.Clone(r.volumes)})
	r.memPool.mu.Unlock()
	r.memStore.mu.Unlock()
}

func (r *recorder) Save(name string, data []byte) error {
	r.record()
	return r.memStore.Save(name, data)
}

func (r *recorder) Delete(name string) error {
	r.record()
	return r.memStore.Delete(name)
}

func (r *recorder) Create(name string, size int64, blockSize int) (blockdev.Volume, error) {
	r.record()
	return r.memPool.Create(name, size, blockSize)
}

func (r *recorder) Remove(name string) error {
	r.record()
	return r.memPool.Remove(name)
}
