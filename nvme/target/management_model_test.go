package target

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestManagementModel has hosts with several controllers each do at random whatever changes what namespaces there are,
// who has them and who may use them, with restarts in between, and the operator too. What a model that knows no
// concurrency and stores nothing says must hold after each step.
func TestManagementModel(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newManagementModel(t, seed).run(modelSteps) })
	}
}

const (
	modelSteps    = 500
	modelHosts    = 3
	modelPool     = 1 << 20
	modelMost     = 7 // controllers
	modelBlocks   = 4 // of each namespace that are written and read
	operatorsMost = 3 // namespaces of the operator
	operatorsSize = 1 << 16
)

// managementModel is a target whose hosts manage namespaces, and what it must be like.
type managementModel struct {
	t     *testing.T
	rnd   *rand.Rand
	pool  *memPool
	store *memStore
	tg    *Target
	done  []string // the last steps

	hosts []*modelController
	ns    map[uint32]*modelNamespace
	uuids byte // of the operator's namespaces so far
}

// modelController is a controller of a host.
type modelController struct {
	*session
	host    int
	changed map[uint32]bool
	event   *fakeRequest // the Asynchronous Event Request that is outstanding
}

// modelNamespace is a namespace as it must be.
type modelNamespace struct {
	nsid               uint32
	created, private   bool
	protected, persist bool
	block              int
	blocks             uint64
	has                map[*modelController]bool
	differs            map[int]bool    // hosts whose attachment isn't the default
	data               map[uint64]byte // by block; 0 for others
	volume             *testVolume     // of the operator
	uuid               byte            // likewise
	keys               map[int]uint64
	kind               nvme.ResvType
	holder             int
}

func newManagementModel(t *testing.T, seed uint64) *managementModel {
	m := &managementModel{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), pool: newMemPool(modelPool), store: newMemStore(), ns: map[uint32]*modelNamespace{}}
	m.start()
	return m
}

func (m *managementModel) failf(format string, a ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nafter %q", fmt.Sprintf(format, a...), m.done)
}

func (m *managementModel) note(format string, a ...any) {
	m.done = append(m.done, fmt.Sprintf(format, a...))
	m.done = m.done[max(len(m.done)-40, 0):]
}

// config is how the operator configures a namespace.
func (n *modelNamespace) config() NamespaceConfig {
	return NamespaceConfig{NSID: n.nsid, Volume: n.volume, UUID: [16]byte{n.uuid, 15: 1}}
}

func (m *managementModel) start() {
	cfg := Config{Store: m.store, Subsystems: []SubsystemConfig{{NQN: testNQN, AllowAnyHost: true, Pool: m.pool}}}
	for _, nsid := range m.nsids() {
		if n := m.ns[nsid]; !n.created {
			cfg.Subsystems[0].Namespaces = append(cfg.Subsystems[0].Namespaces, n.config())
		}
	}
	var err error
	if m.tg, err = New(cfg); err != nil {
		m.failf("start: %v", err)
	}
}

func (m *managementModel) nsids() []uint32 { return slices.Sorted(maps.Keys(m.ns)) }

func (m *managementModel) run(steps int) {
	type step struct {
		weight int
		do     func()
	}
	all := []step{
		{6, m.create}, {4, m.remove}, {1, m.removeAll}, {20, m.attach}, {4, m.connect}, {3, m.disconnect},
		{2, m.operator}, {4, m.resize}, {15, m.register}, {15, m.acquire}, {8, m.release}, {25, m.write}, {4, m.protect}, {1, m.restart},
	}
	total := 0
	for _, s := range all {
		total += s.weight
	}
	for i := range steps {
		if len(m.hosts) == 0 {
			m.connect()
		}
		n := m.rnd.IntN(total)
		for _, s := range all {
			if n -= s.weight; n < 0 {
				s.do()
				break
			}
		}
		m.light()
		if i%10 == 0 {
			m.check()
		}
	}
	m.check()
	for len(m.hosts) > 0 {
		m.disconnect()
	}
	closeTarget(m.t, m.tg)
}

func (m *managementModel) anyController() *modelController { return m.hosts[m.rnd.IntN(len(m.hosts))] }

// anyNSID returns mostly one that exists.
func (m *managementModel) anyNSID() uint32 {
	all := m.nsids()
	if len(all) == 0 || m.rnd.IntN(12) == 0 {
		return []uint32{0, 2, FirstCreatedNSID + uint32(m.rnd.IntN(8)), MaxNSID, MaxNSID + 1}[m.rnd.IntN(5)]
	}
	return all[m.rnd.IntN(len(all))]
}

// expect executes a command, and fails unless it ends with a status, which is without DNR.
func (m *managementModel) expect(c *fakeConn, cmd nvme.Command, data []byte, want nvme.Status) *nvme.Completion {
	m.t.Helper()
	cqe := c.do(cmd, data)
	if got := cqe.Status().Code(); got != want {
		m.failf("command %#x (NSID %d, dword 10 %#x): status %#x, want %#x", cmd[0], cmd.NSID(), cmd.CDW10(), uint16(got), uint16(want))
	}
	return cqe
}

func (m *managementModel) free() uint64 {
	free := uint64(modelPool)
	for _, n := range m.ns {
		if n.created {
			free -= n.blocks * uint64(n.block)
		}
	}
	return free
}

func (m *managementModel) create() {
	c := m.anyController()
	format := m.rnd.IntN(2)
	n := &modelNamespace{created: true, private: m.rnd.IntN(3) == 0, block: createdBlocks[format], blocks: uint64(modelBlocks + m.rnd.IntN(60)),
		data: map[uint64]byte{}, has: map[*modelController]bool{}, differs: map[int]bool{}, keys: map[int]uint64{}}
	if m.rnd.IntN(8) == 0 {
		n.blocks = m.free()/uint64(n.block) + uint64(m.rnd.IntN(2))
	}
	spec := nvme.NamespaceSpec{NSZE: n.blocks, NCAP: n.blocks, FLBAS: uint8(format), ANAGRPID: uint32(m.rnd.IntN(3))}
	if !n.private {
		spec.NMIC = nvme.NMICShared
	}
	for n.nsid = FirstCreatedNSID; m.ns[n.nsid] != nil; n.nsid++ {
	}
	want := nvme.StatusSuccess
	switch {
	case n.blocks < modelBlocks:
		return
	case n.blocks*uint64(n.block) > m.free():
		want = nvme.StatusInsufficientCapacity
	}
	cqe := m.expect(c.admin, createCommand(), spec.AppendTo(nil), want)
	m.note("create %d private %v: %#x", n.nsid, n.private, uint16(want))
	if want != nvme.StatusSuccess {
		return
	}
	if cqe.DW0() != n.nsid {
		m.failf("NSID %d, want %d", cqe.DW0(), n.nsid)
	}
	m.ns[n.nsid] = n
}

// gone tells those that had a namespace except one, and forgets it.
func (m *managementModel) gone(n *modelNamespace, except *modelController) {
	for c := range n.has {
		if c != except {
			c.changed[n.nsid] = true
		}
	}
	delete(m.ns, n.nsid)
}

func (m *managementModel) mayDelete(host int, n *modelNamespace) nvme.Status {
	switch {
	case n == nil:
		return nvme.StatusInvalidNamespace
	case !n.created:
		return nvme.StatusOperationDenied
	case n.protected:
		return nvme.StatusNamespaceWriteProtected
	case n.conflicts(host, true):
		return nvme.StatusReservationConflict
	}
	return nvme.StatusSuccess
}

func (m *managementModel) remove() {
	c, nsid := m.anyController(), m.anyNSID()
	n := m.ns[nsid]
	want := m.mayDelete(c.host, n)
	m.expect(c.admin, deleteCommand(nsid), nil, want)
	m.note("host %d deletes %d: %#x", c.host, nsid, uint16(want))
	if want == nvme.StatusSuccess {
		m.gone(n, c)
	}
}

func (m *managementModel) removeAll() {
	c := m.anyController()
	want := nvme.StatusSuccess
	for _, nsid := range m.nsids() {
		if want == nvme.StatusSuccess {
			want = m.mayDelete(c.host, m.ns[nsid])
		}
	}
	m.expect(c.admin, deleteCommand(nvme.NSIDAll), nil, want)
	m.note("host %d deletes all: %#x", c.host, uint16(want))
	if want == nvme.StatusSuccess {
		for _, n := range m.ns {
			m.gone(n, c)
		}
	}
}

func (m *managementModel) attach() {
	c, nsid, detach := m.anyController(), m.anyNSID(), m.rnd.IntN(5) < 2
	var list []*modelController
	for _, other := range m.hosts {
		if m.rnd.IntN(len(m.hosts)) == 0 {
			list = append(list, other)
		}
	}
	slices.SortFunc(list, func(a, b *modelController) int { return int(a.cntlid) - int(b.cntlid) })
	var ids []uint16
	for _, other := range list {
		ids = append(ids, other.cntlid)
	}
	n := m.ns[nsid]
	want := nvme.StatusSuccess
	if n == nil {
		want = nvme.StatusInvalidNamespace
	} else if len(list) == 0 {
		want = nvme.StatusInvalidControllerList
	}
	for i, other := range list {
		switch {
		case want != nvme.StatusSuccess:
		case detach && !n.has[other]:
			want = nvme.StatusNamespaceNotAttached
		case detach:
		case n.has[other]:
			want = nvme.StatusNamespaceAlreadyAttached
		case n.private && (i > 0 || len(n.has) > 0):
			want = nvme.StatusNamespacePrivate
		}
	}
	if want == nvme.StatusSuccess && n.conflicts(c.host, true) {
		want = nvme.StatusReservationConflict
	}
	action := nvme.NSAttach
	if detach {
		action = nvme.NSDetach
	}
	m.expect(c.admin, attachCommand(nsid, action), controllerList(ids...), want)
	m.note("host %d detach %v %d: %d: %#x", c.host, detach, nsid, ids, uint16(want))
	if want != nvme.StatusSuccess {
		return
	}
	for _, other := range list {
		other.changed[nsid] = true
		if detach {
			delete(n.has, other)
		} else {
			n.has[other] = true
		}
		if detach != n.created {
			n.differs[other.host] = true
		} else {
			delete(n.differs, other.host)
		}
	}
}

// offer attaches a namespace to a controller if either is new.
func (n *modelNamespace) offer(c *modelController) bool {
	if n.created != n.differs[c.host] || n.private && len(n.has) > 0 {
		return false
	}
	n.has[c] = true
	return true
}

func (m *managementModel) connect() {
	if len(m.hosts) >= modelMost {
		return
	}
	host := 1 + m.rnd.IntN(modelHosts)
	c := &modelController{session: connectAs(m.t, m.tg, host), host: host, changed: map[uint32]bool{}}
	m.hosts = append(m.hosts, c)
	enableEvents(c.admin, nvme.AENNamespace)
	c.event = c.admin.start(asyncEvent(1), nil)
	m.note("host %d connects as %d", host, c.cntlid)
	for _, n := range m.ns {
		n.offer(c)
	}
}

func (m *managementModel) disconnect() {
	i := m.rnd.IntN(len(m.hosts))
	c := m.hosts[i]
	m.hosts = slices.Delete(m.hosts, i, i+1)
	c.close()
	m.note("%d disconnects", c.cntlid)
	for _, n := range m.ns {
		delete(n.has, c)
	}
}

// operator adds or removes a namespace of the operator, perhaps one that was there before.
func (m *managementModel) operator() {
	nsid := 1 + uint32(m.rnd.IntN(operatorsMost))
	sub := m.tg.Subsystem(testNQN)
	if n := m.ns[nsid]; n != nil {
		if err := sub.RemoveNamespace(nsid); err != nil {
			m.failf("%v", err)
		}
		m.note("the operator removes %d", nsid)
		m.gone(n, nil)
		return
	}
	m.uuids++
	n := &modelNamespace{nsid: nsid, block: 512, blocks: operatorsSize / 512, data: map[uint64]byte{}, has: map[*modelController]bool{}, differs: map[int]bool{},
		keys: map[int]uint64{}, volume: newTestVolume(operatorsSize, 512), uuid: m.uuids}
	if _, err := sub.AddNamespace(n.config()); err != nil {
		m.failf("%v", err)
	}
	m.note("the operator adds %d", nsid)
	m.ns[nsid] = n
	for _, c := range m.hosts {
		if n.offer(c) {
			c.changed[nsid] = true
		}
	}
}

// resize has a volume of the operator grow, or shrink and keep what it holds.
func (m *managementModel) resize() {
	n := m.ns[1+uint32(m.rnd.IntN(operatorsMost))]
	if n == nil {
		return
	}
	n.blocks = modelBlocks + uint64(m.rnd.IntN(operatorsSize/512-modelBlocks+1))
	n.volume.info.Size = int64(n.blocks) * int64(n.block)
	if err := n.volume.Refresh(); err != nil {
		m.failf("%v", err)
	}
	m.note("%d has %d blocks", n.nsid, n.blocks)
	for c := range n.has {
		c.changed[n.nsid] = true
	}
}

// write writes a block, or reads one: one of the first, or one at the end or beyond it.
func (m *managementModel) write() {
	c, nsid, write := m.anyController(), m.anyNSID(), m.rnd.IntN(2) == 0
	n, lba, block := m.ns[nsid], uint64(m.rnd.IntN(modelBlocks)), 512
	if n != nil {
		block = n.block
		if m.rnd.IntN(3) == 0 {
			lba = n.blocks - 2 + uint64(m.rnd.IntN(4))
		}
	}
	value := byte(m.rnd.Uint32())
	data, op := bytes.Repeat([]byte{value}, block), nvme.OpWrite
	if !write {
		op = nvme.OpRead
	}
	want := n.may(c)
	switch {
	case want != nvme.StatusSuccess:
	case n.conflicts(c.host, write):
		want = nvme.StatusReservationConflict
	case write && n.protected:
		want = nvme.StatusNamespaceWriteProtected
	case lba >= n.blocks:
		want = nvme.StatusLBAOutOfRange
	}
	m.expect(c.io, command(func(cmd *nvme.Command) { cmd.SetIO(op, nsid, lba, 1, 0) }), data, want)
	m.note("host %d %#x of %d at %d: %#x", c.host, op, nsid, lba, uint16(want))
	switch {
	case want != nvme.StatusSuccess:
	case write:
		n.data[lba] = value
	case !bytes.Equal(data, bytes.Repeat([]byte{n.data[lba]}, block)):
		m.failf("block %d of namespace %d is %d, want %d", lba, nsid, data[0], n.data[lba])
	}
}

func (m *managementModel) protect() {
	c, nsid, state := m.anyController(), m.anyNSID(), uint32(m.rnd.IntN(2))
	n := m.ns[nsid]
	want := n.may(c)
	m.expect(c.admin, setFeature(nvme.FeatWriteProtect, nsid, state), nil, want)
	m.note("host %d protect %d: %d: %#x", c.host, nsid, state, uint16(want))
	if want != nvme.StatusSuccess || n.protected == (state == writeProtected) {
		return
	}
	n.protected = state == writeProtected
	for other := range n.has {
		if other != c {
			other.changed[nsid] = true
		}
	}
}

func (m *managementModel) restart() {
	for len(m.hosts) > 0 {
		m.disconnect()
	}
	closeTarget(m.t, m.tg)
	m.note("restart")
	for _, n := range m.ns {
		if !n.persist {
			n.kind, n.holder, n.keys = 0, 0, map[int]uint64{}
		}
	}
	m.start()
}

// light checks what costs little.
func (m *managementModel) light() {
	var created int
	for _, n := range m.ns {
		if n.created {
			created++
		}
	}
	if n := m.pool.count(); n != created {
		m.failf("there are %d volumes, want %d", n, created)
	}
	if left := m.tg.Subsystem(testNQN).unallocated(); left != m.free() {
		m.failf("%d bytes are left, want %d", left, m.free())
	}
}

// check compares what each controller sees.
func (m *managementModel) check() {
	page := make([]byte, nvme.PageSize)
	for _, c := range m.hosts {
		var active []uint32
		for _, nsid := range m.nsids() {
			if m.ns[nsid].has[c] {
				active = append(active, nsid)
			}
		}
		if got := nsidsOf(c.admin, nvme.CNSActiveNSIDs); !slices.Equal(got, active) {
			m.failf("controller %d has %d, want %d", c.cntlid, got, active)
		}
		if got := nsidsOf(c.admin, nvme.CNSAllocatedNSIDs); !slices.Equal(got, m.nsids()) {
			m.failf("allocated are %d, want %d", got, m.nsids())
		}
		m.checkEvent(c)
		c.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogChangedNamespaces, Length: nvme.PageSize}), page)
		changed, err := nvme.ParseNSIDList(page)
		if want := slices.Sorted(maps.Keys(c.changed)); err != nil || !slices.Equal(changed, want) {
			m.failf("controller %d is told of %d, %v; want %d", c.cntlid, changed, err, want)
		}
		clear(c.changed)
		for _, nsid := range active {
			m.compare(c, m.ns[nsid])
		}
	}
}

// checkEvent checks that a controller was notified once if namespaces have changed since the last check.
func (m *managementModel) checkEvent(c *modelController) {
	notified := 0
	for c.event.answered() {
		if e := nvme.AsyncEvent(c.event.wait().DW0()); e == nvme.EventReservation {
			for nextNotice(c.admin).Type != 0 {
			}
		} else if notified++; e != nvme.EventNamespaceChanged {
			m.failf("controller %d is notified of %v", c.cntlid, e)
		}
		c.event = c.admin.start(asyncEvent(1), nil)
	}
	if notified > 1 || notified == 1 != (len(c.changed) > 0) {
		m.failf("controller %d is notified %d times of changes of %v", c.cntlid, notified, c.changed)
	}
}

// compare compares what a controller sees of a namespace.
func (m *managementModel) compare(c *modelController, n *modelNamespace) {
	var ids []uint16
	for other := range n.has {
		ids = append(ids, other.cntlid)
	}
	slices.Sort(ids)
	if got := controllersOf(c.admin, n.nsid); !slices.Equal(got, ids) {
		m.failf("namespace %d is attached to %d, want %d", n.nsid, got, ids)
	}
	page := make([]byte, nvme.PageSize)
	c.admin.must(command(func(cmd *nvme.Command) { cmd.SetIdentify(nvme.CNSNamespace, n.nsid, 0, 0) }), page)
	var id nvme.IdentifyNamespace
	if err := id.Parse(page); err != nil || id.NSZE != n.blocks || id.NCAP != n.blocks || id.NUSE > n.blocks || id.BlockSize() != n.block || id.NSATTR&nvme.NSATTRWriteProtected != 0 != n.protected {
		m.failf("namespace %d: %d blocks, NCAP %d, NUSE %d, of %d bytes, NSATTR %#x, %v; want %+v", n.nsid, id.NSZE, id.NCAP, id.NUSE, id.BlockSize(), id.NSATTR, err, n)
	}
	c.io.must(command(func(cmd *nvme.Command) { cmd.SetResvReport(n.nsid, nvme.PageSize) }), page)
	var p nvme.ResvStatus
	if err := p.Parse(page); err != nil {
		m.failf("%v", err)
	}
	keys := map[int]uint64{}
	for _, r := range p.Registrants {
		host := int(r.HostID[0])
		keys[host] = r.Key
		if r.Holder != n.holds(host) {
			m.failf("namespace %d: host %d holds the reservation: %v, want %v", n.nsid, host, r.Holder, n.holds(host))
		}
	}
	if p.Type != n.kind || p.Persist != n.persist || !maps.Equal(keys, n.keys) {
		m.failf("namespace %d: type %d, persistent %v, keys %v; want %d, %v, %v", n.nsid, p.Type, p.Persist, keys, n.kind, n.persist, n.keys)
	}
}
