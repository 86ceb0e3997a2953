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
	untyped := ioCommand(nvme.OpRead, 7, 1, 0)
	untyped.SGL1().SetBlock(nvme.SGLTransport, 0, 512)
	s.io.fails(untyped, make([]byte, 512), nvme.StatusSGLTypeInvalid|dnr)
	check("SGL", 24, 7)
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

// TestSMARTCounts: Compare and Verify read data; Compare counts as a read command as well. A Copy writes data, and
// counts as both a read and a write command.
func TestSMARTCounts(t *testing.T) {
	s := connect(t, newTarget(t, newTestVolume(4<<20, 512)), testNQN)
	defer s.close()
	data := make([]byte, 512_000)
	s.io.fails(ioCommand(nvme.OpWriteZeroes, 1<<40, 1, 0), nil, nvme.StatusLBAOutOfRange|dnr)
	s.io.must(ioCommand(nvme.OpCompare, 0, 1000, 0), data)
	s.io.must(ioCommand(nvme.OpVerify, 0, 1000, 0), nil)
	s.io.must(ioCommand(nvme.OpRead, 0, 1000, 0), data)
	s.io.must(ioCommand(nvme.OpWrite, 0, 1000, 0), data)
	s.io.must(ioCommand(nvme.OpWriteZeroes, 0, 1000, 0), nil)
	cmd, ranges := copyCommand(2000, 0, nvme.CopyRange{SLBA: 0, Blocks: 500}, nvme.CopyRange{SLBA: 700, Blocks: 500})
	s.io.must(cmd, ranges)
	page := make([]byte, nvme.SMARTLogSize)
	s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogSMART, NSID: nvme.NSIDAll, Length: nvme.SMARTLogSize}), page)
	var p nvme.SMARTLog
	if err := p.Parse(page); err != nil {
		t.Fatal(err)
	}
	if p.AvailableSpare != 100 || p.PowerCycles.Uint64() != 1 || p.ErrorLogEntries.Uint64() != 1 {
		t.Errorf("%+v", p)
	}
	got := [4]uint64{p.DataUnitsRead.Uint64(), p.HostReads.Uint64(), p.DataUnitsWritten.Uint64(), p.HostWrites.Uint64()}
	if want := [4]uint64{3, 3, 2, 2}; got != want {
		t.Errorf("units read, reads, units written, writes: %v, want %v", got, want)
	}
}

// TestSMARTKeepsCounts: the counts of a subsystem never decrease, whatever namespaces are removed and while they are;
// the last commands of one that goes are among them.
func TestSMARTKeepsCounts(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, newTestVolume(1<<20, 512), v)
	s := connect(t, tg, testNQN)
	defer s.close()
	sub := tg.sortedSubsystems()[0]
	reads := func(nsid uint32) uint64 {
		t.Helper()
		page := make([]byte, nvme.SMARTLogSize)
		s.admin.must(getLog(nvme.GetLogPage{LID: nvme.LogSMART, NSID: nsid, Length: nvme.SMARTLogSize}), page)
		var p nvme.SMARTLog
		if err := p.Parse(page); err != nil {
			t.Fatal(err)
		}
		return p.HostReads.Uint64()
	}
	read := func(nsid uint32) nvme.Command {
		return command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, nsid, 0, 1, 0) })
	}
	s.io.must(read(1), make([]byte, 512))
	s.io.must(read(2), make([]byte, 512))
	v.setHold(true)
	last := s.io.start(read(2), make([]byte, 512))
	<-v.arrived
	wait, err := sub.TakeNamespace(2)
	if err != nil {
		t.Fatal(err)
	}
	if n := reads(nvme.NSIDAll); n != 2 {
		t.Errorf("%d reads while the namespace goes, want 2", n)
	}
	v.release()
	last.wait()
	wait()
	for range 2 {
		if n := reads(nvme.NSIDAll); n != 3 {
			t.Errorf("%d reads when it has gone, want 3", n)
		}
		if _, err := sub.AddNamespace(NamespaceConfig{NSID: 2, Volume: newTestVolume(1<<20, 512)}); err != nil {
			t.Fatal(err)
		}
		if all, one := reads(nvme.NSIDAll), reads(2); all != 3 || one != 0 {
			t.Errorf("%d reads, of a new namespace %d, want 3 and 0", all, one)
		}
		if err := sub.RemoveNamespace(2); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFieldInError: a command with a wrong field is refused, and the error log names the field: its first byte in the
// command, and in bits 10:8 its bit there (NVMe base, "Error Information Log Entry").
func TestFieldInError(t *testing.T) {
	tg := newTargetWith(t, func(c *Config) {
		c.Store, c.Subsystems[0].Pool = newMemStore(), newMemPool(1<<20)
		c.Subsystems[0].Namespaces[1].ReadOnly = true
	}, newTestVolume(4<<20, 512), newTestVolume(1<<20, 512))
	s := connectAs(t, tg, 1)
	defer s.close()
	d := dial(t, tg)
	defer d.hangUp(nil)
	connectAdmin(d, nvme.DiscoveryNQN, 0)
	identify := func(cns nvme.CNS, nsid uint32, cntid uint16, csi nvme.CSI) nvme.Command {
		return command(func(c *nvme.Command) { c.SetIdentify(cns, nsid, cntid, csi) })
	}
	get := func(f nvme.FID, nsid, dw11 uint32) nvme.Command {
		return command(func(c *nvme.Command) { c.SetGetFeatures(f, nvme.SELCurrent, nsid, dw11) })
	}
	opcode := func(op nvme.Opcode) nvme.Command {
		return command(func(c *nvme.Command) { c.SetFlush(0); c.SetOpcode(op) })
	}
	dword := func(cmd nvme.Command, n int, bits uint32) nvme.Command {
		cmd.SetCDW(n, cmd.CDW(n)|bits)
		return cmd
	}
	const (
		field     = nvme.StatusInvalidField
		namespace = nvme.StatusInvalidNamespace
		fixed     = nvme.StatusFeatureNotChangeable
	)
	saved := setFeature(nvme.FeatArbitration, 0, 1)
	acquire := acquireAs(1, nvme.ResvAcquire, nvme.ResvWriteExclusive, 0, 0, 0).cmd
	s.io.must(registerAs(1, nvme.ResvRegister, 0, 5, 0).cmd, (&nvme.ResvKeys{Other: 5}).AppendTo(nil))
	s.io.must(acquire, (&nvme.ResvKeys{Current: 5}).AppendTo(nil))
	for name, tc := range map[string]struct {
		q      *fakeConn
		cmd    nvme.Command
		length int // of the data
		status nvme.Status
		loc    uint16
	}{
		"unknown admin command":       {s.admin, opcode(0x7e), 0, nvme.StatusInvalidOpcode, 0},
		"unknown I/O command":         {s.io, opcode(0x7e), 0, nvme.StatusInvalidOpcode, 0},
		"Format of discovery":         {d, formatCommand(1, 0, 0), 0, nvme.StatusInvalidOpcode, 0},
		"Identify of discovery":       {d, identify(nvme.CNSNamespace, 1, 0, 0), 4096, field, 40},
		"CNS":                         {s.admin, identify(0xff, 0, 0, 0), 4096, field, 40},
		"CNTID":                       {s.admin, identify(nvme.CNSCommandSets, 0, 0xff00, 0), 4096, field, 42},
		"CSI of active namespaces":    {s.admin, identify(nvme.CNSCommandSetActiveNSIDs, 0, 0, nvme.CSIZonedNS), 4096, field, 47},
		"CSI of allocated namespaces": {s.admin, identify(nvme.CNSCommandSetAllocated, 0, 0, nvme.CSIZonedNS), 4096, field, 47},
		"CSI of a controller":         {s.admin, identify(nvme.CNSCommandSetController, 0, 0, nvme.CSIZonedNS), 4096, field, 47},
		"NSID of a list":              {s.admin, identify(nvme.CNSActiveNSIDs, nvme.NSIDAll, 0, 0), 4096, namespace, 4},
		"NSID of a namespace":         {s.admin, identify(nvme.CNSNamespace, MaxNSID+1, 0, 0), 4096, namespace, 4},
		"all formats of another CNS":  {s.admin, identify(nvme.CNSAllocatedNamespace, nvme.NSIDAll, 0, 0), 4096, namespace, 4},
		"NSID of controllers":         {s.admin, identify(nvme.CNSAttachedControllers, 0, 0, 0), 4096, namespace, 4},
		"NSID of a command set":       {s.admin, identify(nvme.CNSCommandSetNamespace, 0, 0, 0), 4096, namespace, 4},
		"NUMD":                        {s.admin, getLog(nvme.GetLogPage{LID: nvme.LogError, Length: 2 << 20}), 2 << 20, field, 42},
		"LPO":                         {s.admin, getLog(nvme.GetLogPage{LID: nvme.LogError, Length: 4, Offset: 2}), 4, field, 48},
		"LPO beyond the page":         {s.admin, getLog(nvme.GetLogPage{LID: nvme.LogFirmware, Length: 4, Offset: 516}), 4, field, 48},
		"LID":                         {s.admin, getLog(nvme.GetLogPage{LID: 0xff, Length: 4}), 4, nvme.StatusInvalidLogPage, 40},
		"NSID of SMART":               {s.admin, getLog(nvme.GetLogPage{LID: nvme.LogSMART, NSID: 7, Length: 4}), 4, namespace, 4},
		"FID to get":                  {s.admin, get(0xff, 0, 0), 0, field, 40},
		"SEL":                         {s.admin, getFeature(nvme.FeatArbitration, 4, 0), 0, field, 41},
		"EXHID":                       {s.admin, get(nvme.FeatHostID, 0, 2), 8, field, 44},
		"NSID of protection to get":   {s.admin, get(nvme.FeatWriteProtect, 7, 0), 0, namespace, 4},
		"error recovery of all":       {s.admin, get(nvme.FeatErrorRecovery, nvme.NSIDAll, 0), 0, namespace, 4},
		"persistence of all":          {s.admin, get(nvme.FeatResvPersistence, nvme.NSIDAll, 0), 0, field, 4},
		"NSID of error recovery":      {s.admin, get(nvme.FeatErrorRecovery, 7, 0), 0, namespace, 4},
		"FID to set":                  {s.admin, setFeature(0xff, 0, 0), 0, field, 40},
		"SV":                          {s.admin, dword(saved, 10, 1<<31), 0, nvme.StatusFeatureNotSaveable, 43 | 7<<8},
		"NSID of a controller's":      {s.admin, setFeature(nvme.FeatArbitration, 1, 0), 0, nvme.StatusFeatureNotNamespace, 4},
		"power state":                 {s.admin, setFeature(nvme.FeatPower, 0, 3), 0, field, 44},
		"WCE":                         {s.admin, setFeature(nvme.FeatVolatileWC, 0, 0), 0, fixed, 44},
		"DULBE":                       {s.admin, setFeature(nvme.FeatErrorRecovery, 1, 1<<16), 0, field, 46},
		"TMPSEL":                      {s.admin, setFeature(nvme.FeatTempThreshold, 0, 1<<16), 0, field, 46},
		"THSEL":                       {s.admin, setFeature(nvme.FeatTempThreshold, 0, 2<<20), 0, field, 46 | 4<<8},
		"NSQR":                        {s.admin, setFeature(nvme.FeatNumberOfQueues, 0, 0xffff), 0, field, 44},
		"NCQR":                        {s.admin, setFeature(nvme.FeatNumberOfQueues, 0, 0xffff<<16), 0, field, 46},
		"NSID of protection to set":   {s.admin, setFeature(nvme.FeatWriteProtect, 7, 1), 0, namespace, 4},
		"state of protection":         {s.admin, setFeature(nvme.FeatWriteProtect, 1, 2), 0, field, 44},
		"protection of read-only":     {s.admin, setFeature(nvme.FeatWriteProtect, 2, 0), 0, fixed, 44},
		"SEL of management":           {s.admin, dword(deleteCommand(1), 10, 2), 0, field, 40},
		"NSID to delete":              {s.admin, deleteCommand(7), 0, namespace, 4},
		"SEL of attachment":           {s.admin, attachCommand(1, 2), 4096, field, 40},
		"NSID to attach":              {s.admin, attachCommand(7, nvme.NSAttach), 4096, namespace, 4},
		"SLBA":                        {s.io, ioCommand(nvme.OpRead, 8192, 1, 0), 512, nvme.StatusLBAOutOfRange, 40},
		"last block":                  {s.io, ioCommand(nvme.OpRead, 8190, 4, 0), 2048, nvme.StatusLBAOutOfRange, 40},
		"NLB":                         {s.io, ioCommand(nvme.OpRead, 0, 4096, 0), 4096 * 512, field, 48},
		"PRACT of Verify":             {s.io, dword(ioCommand(nvme.OpVerify, 0, 1, 0), 12, 1<<29), 0, field, 51 | 5<<8},
		"length of ranges":            {s.io, command(func(c *nvme.Command) { c.SetDSM(1, 2, 0) }), 16, nvme.StatusSGLLengthInvalid, 24},
		"type to release":             {s.io, releaseAs(1, nvme.ResvRelease, nvme.ResvExclusiveAccess, 5, 0).cmd, 8, field, 41},
	} {
		t.Run(name, func(t *testing.T) {
			data := make([]byte, tc.length)
			if tc.length == 8 {
				data[0] = 5 // the reservation key
			}
			if st := tc.q.do(tc.cmd, data).Status(); st != tc.status|dnr|nvme.StatusMore {
				t.Errorf("status %#x, want %#x", uint16(st), uint16(tc.status|dnr|nvme.StatusMore))
			}
			of := tc.q
			if of == s.io {
				of = s.admin
			}
			lba := uint64(0) // not of a command that names no blocks
			if tc.status == nvme.StatusLBAOutOfRange {
				lba = 8192 // the first that there isn't
			}
			if e := lastError(of); e.Location != tc.loc || e.LBA != lba {
				t.Errorf("location %#x, LBA %d, want %#x and %d", e.Location, e.LBA, tc.loc, lba)
			}
		})
	}
}
