package target

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestReservedOfCC: reserved bits of CC, among them CRIME of a controller without CAP.CRMS, read as 0 whatever the host
// writes.
func TestReservedOfCC(t *testing.T) {
	q := dial(t, newTarget(t, newTestVolume(1<<20, 512)))
	connectAdmin(q, testNQN, 0)
	const enabled = nvme.CCFabrics | nvme.CCEnable
	q.must(setProperty(nvme.PropCC, uint64(enabled|0xff00000e)), nil)
	if cc := q.must(getProperty(nvme.PropCC), nil).DW0(); cc != uint32(enabled) {
		t.Errorf("CC %#x, want %#x", cc, uint32(enabled))
	}
}

// TestLinuxBringUp goes through what a Linux host does on an admin queue, command by command,
// and checks what it checks (drivers/nvme/host: nvmf_connect_admin_queue, nvme_enable_ctrl,
// nvme_init_ctrl_finish, nvme_start_ctrl, nvme_scan_work).
func TestLinuxBringUp(t *testing.T) {
	tg := newTarget(t, memVolume(t, 1<<20, 512), newTestVolume(1<<20, 4096))
	q := dial(t, tg)
	cqe := q.must(connectCommand(0, 31, 5000), connectData(t, nvme.CNTLIDDynamic, testNQN))
	cntlid := nvme.ConnectResult(cqe.DW0()).CNTLID()
	if cntlid == 0 || cntlid > nvme.CNTLIDMax || cqe.Result()>>16 != 0 {
		t.Fatalf("Connect result %#x", cqe.Result())
	}

	checkEnable(t, q)
	checkIdentifyController(t, q, cntlid)
	checkLogs(t, q)
	checkQueues(t, tg, q, cntlid)
	q.must(command(func(c *nvme.Command) {
		c.SetSetFeatures(nvme.FeatAsyncEvent, false, 0, uint32(nvme.AENNamespace))
	}), nil)
	aer := command(func(c *nvme.Command) { c.SetAsyncEvent(); c.SetCID(31) })
	q.start(aer, nil)

	checkNamespaces(t, q)
	q.must(command(func(c *nvme.Command) { c.SetKeepAlive() }), nil)

	q.must(setProperty(nvme.PropCC, 0x00464001), nil)
	if csts := nvme.CSTS(q.must(getProperty(nvme.PropCSTS), nil).DW0()); csts.Shutdown() != nvme.CSTSShutdownComplete {
		t.Errorf("CSTS %#x after shutdown", uint32(csts))
	}
	q.hangUp(nil)
}

// checkEnable reads the properties and enables the controller (nvme_enable_ctrl).
func checkEnable(t *testing.T, q *fakeConn) {
	t.Helper()
	caps := nvme.CAP(q.must(getProperty(nvme.PropCAP), nil).Result())
	if caps.MPSMIN() != 0 || caps&nvme.CAPNVM == 0 || caps&nvme.CAPIOCS != 0 || caps&nvme.CAPCQR == 0 || caps.MQES() != 128 {
		t.Errorf("CAP %#x", uint64(caps))
	}
	if csts := q.must(getProperty(nvme.PropCSTS), nil).DW0(); csts != 0 {
		t.Errorf("CSTS %#x before CC.EN", csts)
	}
	q.must(setProperty(nvme.PropCC, 0x00460000), nil)
	q.must(setProperty(nvme.PropCC, 0x00460001), nil)
	if csts := q.must(getProperty(nvme.PropCSTS), nil).DW0(); csts != 1 {
		t.Errorf("CSTS %#x after CC.EN", csts)
	}
	if cc := q.must(getProperty(nvme.PropCC), nil).DW0(); cc != 0x00460001 {
		t.Errorf("CC %#x", cc)
	}
	if vs := nvme.Version(q.must(getProperty(nvme.PropVS), nil).DW0()); vs != nvme.Version1_4 {
		t.Errorf("VS %v", vs)
	}
}

// checkLogs reads and sets what a host reads and sets once.
func checkLogs(t *testing.T, q *fakeConn) {
	t.Helper()
	page := make([]byte, nvme.PageSize)
	q.must(command(func(c *nvme.Command) {
		c.SetGetLogPage(nvme.GetLogPage{LID: nvme.LogEffects, Length: 4096})
	}), page)
	var effects nvme.EffectsLog
	if err := effects.Parse(page); err != nil || effects.IO[nvme.OpRead]&nvme.EffectSupported == 0 {
		t.Errorf("effects log: %v, read %#x", err, effects.IO[nvme.OpRead])
	}
	q.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatTimestamp, false, 0, 0) }),
		nvme.Timestamp{Millis: 1700000000000}.AppendTo(nil))
	q.must(command(func(c *nvme.Command) {
		c.SetGetLogPage(nvme.GetLogPage{LID: nvme.LogSMART, NSID: nvme.NSIDAll, Length: 512})
	}), page[:512])
}

// checkQueues asks for four I/O queues and connects them.
func checkQueues(t *testing.T, tg *Target, q *fakeConn, cntlid uint16) {
	t.Helper()
	cqe := q.must(command(func(c *nvme.Command) {
		c.SetSetFeatures(nvme.FeatNumberOfQueues, false, 0, uint32(nvme.NewQueueCounts(4, 4)))
	}), nil)
	if n := nvme.QueueCounts(cqe.DW0()); n.SQ() != 4 || n.CQ() != 4 {
		t.Errorf("granted %d/%d queues", n.SQ(), n.CQ())
	}
	for qid := uint16(1); qid <= 4; qid++ {
		c := dial(t, tg)
		if got := c.must(connectCommand(qid, 127, 0), connectData(t, cntlid, testNQN)).DW0(); got != uint32(cntlid) {
			t.Errorf("I/O Connect result %#x, want %#x", got, cntlid)
		}
	}
}

// checkIdentifyController checks what Linux rejects or warns of.
func checkIdentifyController(t *testing.T, q *fakeConn, cntlid uint16) {
	t.Helper()
	page := make([]byte, nvme.PageSize)
	q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) }), page)
	var id nvme.IdentifyController
	if err := id.Parse(page); err != nil {
		t.Fatal(err)
	}
	switch {
	case id.CNTLID != cntlid:
		t.Errorf("CNTLID %d, want %d", id.CNTLID, cntlid)
	case id.KAS == 0, id.IOCCSZ != (64+4096)/16, id.IORCSZ != 1, id.ICDOFF != 0, id.MSDBD != 1:
		t.Errorf("Fabrics fields: KAS %d IOCCSZ %d IORCSZ %d ICDOFF %d MSDBD %d", id.KAS, id.IOCCSZ, id.IORCSZ, id.ICDOFF, id.MSDBD)
	case id.SGLS&nvme.SGLSSupported == 0, id.SGLS&nvme.SGLSKeyed == 0:
		t.Errorf("SGLS %#x", id.SGLS)
	case id.CMIC&nvme.CMICMultiCtrl == 0, id.CMIC&nvme.CMICANA == 0:
		t.Errorf("CMIC %#x", id.CMIC)
	case id.MNAN == 0, id.MNAN > id.NN, id.NANAGRPID == 0, id.ANAGRPMAX < id.NANAGRPID, id.ANATT == 0,
		nvme.ANALogSize(id.NANAGRPID, id.MNAN) > uint64(id.MaxTransfer()): // Linux demands all of these
		t.Errorf("ANA: MNAN %d NN %d NANAGRPID %d ANAGRPMAX %d ANATT %d", id.MNAN, id.NN, id.NANAGRPID, id.ANAGRPMAX, id.ANATT)
	case id.MaxTransfer() != 1<<20:
		t.Errorf("MDTS %d", id.MDTS)
	case id.MAXCMD != 128, id.SQES != 0x66, id.CQES != 0x44:
		t.Errorf("MAXCMD %d SQES %#x CQES %#x", id.MAXCMD, id.SQES, id.CQES)
	case id.OAES&nvme.AENNamespace == 0, id.NN == 0, id.VWC&nvme.VWCPresent == 0:
		t.Errorf("OAES %#x NN %d VWC %#x", id.OAES, id.NN, id.VWC)
	case id.CNTRLTYPE != nvme.ControllerIO, id.NQN() != testNQN, id.VER != nvme.Version1_4:
		t.Errorf("CNTRLTYPE %v SUBNQN %q VER %v", id.CNTRLTYPE, id.NQN(), id.VER)
	case id.SerialNumber() == "", id.ModelNumber() == "", id.FirmwareRevision() == "":
		t.Errorf("SN %q MN %q FR %q", id.SerialNumber(), id.ModelNumber(), id.FirmwareRevision())
	case id.AERL != 3, id.CTRATT&nvme.CTRATTHostID128 == 0:
		t.Errorf("AERL %d CTRATT %#x", id.AERL, id.CTRATT)
	}
}

// checkNamespaces scans as Linux does.
func checkNamespaces(t *testing.T, q *fakeConn) {
	t.Helper()
	page := make([]byte, nvme.PageSize)
	q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSCommandSetController, 0, 0, nvme.CSINVM) }), page)
	q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSActiveNSIDs, 0, 0, 0) }), page)
	list, err := nvme.ParseNSIDList(page)
	if err != nil || len(list) != 2 || list[0] != 1 || list[1] != 2 {
		t.Fatalf("active namespaces %v, %v", list, err)
	}
	for i, want := range []struct{ blocks, size int }{{2048, 512}, {256, 4096}} {
		nsid := list[i]
		var d nvme.NSDescriptors
		q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSDescriptors, nsid, 0, 0) }), page)
		if err := d.Parse(page); err != nil || d.UUID == [16]byte{} {
			t.Errorf("namespace %d: descriptors %+v, %v", nsid, d, err)
		}
		var id nvme.IdentifyNamespace
		q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, nsid, 0, 0) }), page)
		if err := id.Parse(page); err != nil {
			t.Fatal(err)
		}
		if id.NSZE != uint64(want.blocks) || id.NCAP != id.NSZE || id.BlockSize() != want.size || id.NMIC&nvme.NMICShared == 0 {
			t.Errorf("namespace %d: NSZE %d NCAP %d block %d NMIC %d", nsid, id.NSZE, id.NCAP, id.BlockSize(), id.NMIC)
		}
		if id.NPWG != uint16(4096/want.size-1) || id.NSFEAT&nvme.NSFEATOptPerf == 0 {
			t.Errorf("namespace %d: NPWG %d NSFEAT %#x", nsid, id.NPWG, id.NSFEAT)
		}
		q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSIndependentNamespace, nsid, 0, 0) }), page)
		var ind nvme.IdentifyNamespaceIndependent
		if err := ind.Parse(page); err != nil || ind.NSTAT&nvme.NSTATReady == 0 {
			t.Errorf("namespace %d: independent page %+v, %v", nsid, ind, err)
		}
		q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSCommandSetNamespace, nsid, 0, nvme.CSINVM) }), page)
	}
	q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, 77, 0, 0) }), page)
	if !bytes.Equal(page, make([]byte, nvme.PageSize)) {
		t.Error("the page of an inactive namespace is not zero")
	}
}

// TestStableIdentity: the identifiers of a namespace and its subsystem outlive the target, and differ between
// namespaces and subsystems.
func TestStableIdentity(t *testing.T) {
	identity := func(nqn string, nsid uint32) ([16]byte, string) {
		s := newSubsystem(nil, &SubsystemConfig{NQN: nqn})
		ns := newNamespace(s, nsid, &NamespaceConfig{Volume: newTestVolume(4096, 512)})
		return ns.uuid, s.serial
	}
	u1, s1 := identity(testNQN, 1)
	u2, s2 := identity(testNQN, 1)
	if u1 != u2 || s1 != s2 || len(s1) != 20 {
		t.Errorf("not stable: %x %x, %q %q", u1, u2, s1, s2)
	}
	if u3, s3 := identity(testNQN+"2", 1); u3 == u1 || s3 == s1 {
		t.Error("another subsystem has the same identity")
	}
	if u4, _ := identity(testNQN, 2); u4 == u1 {
		t.Error("another namespace has the same UUID")
	}
	if u := uuidOf(t, "/volumes/a"); u != uuidOf(t, "/volumes/a") || u == uuidOf(t, "/volumes/b") || u == u1 {
		t.Error("the UUID doesn't tell volumes apart")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if uuidOf(t, "a") != uuidOf(t, filepath.Join(here, "a")) {
		t.Error("a relative path makes another UUID")
	}
	if u1[6]>>4 != 8 || u1[8]>>6 != 2 {
		t.Errorf("%x is not a version 8 UUID", u1)
	}
}

// TestInstanceIdentity: a volume whose content is lost when it is closed has a UUID of its own each time it is opened,
// on whatever target, unless it is given one, and keeps nothing that would have to be found by it. A host that is
// connected to two targets of one NQN would otherwise take their volumes for one, and mix their contents.
func TestInstanceIdentity(t *testing.T) {
	export := func(instance string, uuid [16]byte) (*memStore, *session, *Namespace) {
		store, v := newMemStore(), newTestVolume(1<<20, 512)
		v.info.Instance = instance
		tg := newTargetWith(t, func(c *Config) { c.Store = store })
		ns, err := tg.Subsystem(testNQN).AddNamespace(NamespaceConfig{NSID: 1, Volume: v, UUID: uuid})
		if err != nil {
			t.Fatal(err)
		}
		return store, connectAs(t, tg, 1), ns
	}
	store, s, one := export("A", [16]byte{})
	_, _, same := export("A", [16]byte{})
	_, _, other := export("B", [16]byte{})
	if one.uuid != same.uuid || one.uuid == other.uuid {
		t.Errorf("UUIDs %x and %x of one volume, %x of another", one.uuid, same.uuid, other.uuid)
	}
	var id nvme.IdentifyNamespace
	if err := id.Parse(identifyPage(s.admin, nvme.CNSNamespace, 1)); err != nil || id.RESCAP&nvme.RESCAPPersist != 0 {
		t.Errorf("%v; RESCAP %#x: its reservations can't persist", err, id.RESCAP)
	}
	persist := func(nsid uint32) nvme.Command {
		return command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatResvPersistence, false, nsid, nvme.ResvPersistPTPL) })
	}
	for _, nsid := range []uint32{1, nvme.NSIDAll} {
		s.admin.fails(persist(nsid), nil, nvme.StatusInvalidField|dnr) // the only namespace can't
	}
	if _, err := one.sub.AddNamespace(NamespaceConfig{NSID: 2, Volume: newTestVolume(1<<20, 512)}); err != nil {
		t.Fatal(err)
	}
	s.admin.must(persist(nvme.NSIDAll), nil)
	for nsid, want := range map[uint32]uint32{1: 0, 2: nvme.ResvPersistPTPL} {
		get := command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatResvPersistence, 0, nsid, 0) })
		if got := s.admin.must(get, nil).DW0(); got != want {
			t.Errorf("persistence of namespace %d is %#x, want %#x", nsid, got, want)
		}
	}
	s.io.must(ioCommand(nvme.OpWriteUncorrectable, 100, 4, 0), nil)
	s.admin.must(command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatWriteProtect, false, 1, 1) }), nil)
	if names := store.names(); slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, nvme.HostID(one.uuid).String()) }) {
		t.Errorf("%v are stored", names)
	}
	if _, _, given := export("A", [16]byte{1}); given.uuid != [16]byte{1} || given.rescap()&nvme.RESCAPPersist == 0 {
		t.Errorf("UUID %x, RESCAP %#x for one that is given", given.uuid, given.rescap())
	}
}

// uuidOf exports a volume with a path as namespace 1, and returns the UUID that a host finds.
func uuidOf(t *testing.T, path string) [16]byte {
	t.Helper()
	v := newTestVolume(4096, 512)
	v.info.Path = path
	q := dial(t, newTarget(t, v))
	connectAdmin(q, testNQN, 0)
	page := make([]byte, nvme.PageSize)
	q.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSDescriptors, 1, 0, 0) }), page)
	var d nvme.NSDescriptors
	if err := d.Parse(page); err != nil {
		t.Fatal(err)
	}
	return d.UUID
}

// TestCNTLIDRests: an identifier isn't used again soon.
func TestCNTLIDRests(t *testing.T) {
	tg := newTarget(t)
	seen := map[uint16]bool{}
	for range 50 {
		q := dial(t, tg)
		id := connectAdmin(q, testNQN, 0)
		if seen[id] {
			t.Fatalf("CNTLID %d again", id)
		}
		seen[id] = true
		q.hangUp(nil)
	}
	tg.mu.Lock()
	tg.lastCNTLID = nvme.CNTLIDMax
	tg.mu.Unlock()
	q := dial(t, tg)
	if id := connectAdmin(q, testNQN, 0); id != 1 {
		t.Errorf("after %#x comes %#x", nvme.CNTLIDMax, id)
	}
	tg.mu.Lock()
	tg.lastCNTLID = nvme.CNTLIDMax
	tg.mu.Unlock()
	if id := connectAdmin(dial(t, tg), testNQN, 0); id != 2 {
		t.Errorf("after %#x, and while 1 is in use, comes %#x", nvme.CNTLIDMax, id)
	}
}
