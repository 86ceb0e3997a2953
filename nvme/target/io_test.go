package target

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

func ioCommand(op nvme.Opcode, slba uint64, blocks uint32, ctl nvme.IOControl) nvme.Command {
	return command(func(c *nvme.Command) { c.SetIO(op, 1, slba, blocks, ctl) })
}

// inCapsule puts the data of a command into the capsule.
func inCapsule(c nvme.Command, n int) nvme.Command {
	c.SGL1().SetBlock(nvme.SGLInCapsule, 0, uint32(n))
	return c
}

// transportModes are the ways in which a transport and a volume may be slow.
var transportModes = map[string]func(*fakeConn){
	"at once":      func(*fakeConn) {},
	"data later":   func(c *fakeConn) { c.pullLate = true },
	"memory later": func(c *fakeConn) { c.allocFails = 2 },
	"both later":   func(c *fakeConn) { c.pullLate, c.allocFails = true, 1 },
}

// TestAgainstModel: random commands leave the same bytes in the volume as in a model, however volume and transport
// respond.
func TestAgainstModel(t *testing.T) {
	const size = 8 << 20
	volumes := map[string]func(t *testing.T) blockdev.Volume{
		"memory":           func(t *testing.T) blockdev.Volume { return memVolume(t, size, 512) },
		"plain":            func(*testing.T) blockdev.Volume { return newTestVolume(size, 4096) },
		"late":             func(*testing.T) blockdev.Volume { v := newTestVolume(size, 512); v.late = true; return v },
		"blocks of 64 KiB": func(*testing.T) blockdev.Volume { return newTestVolume(size, 64<<10) },
		"aligned":          func(*testing.T) blockdev.Volume { v := newTestVolume(size, 512); v.info.Align = 4096; return v },
	}
	for vname, volume := range volumes {
		for mname, mode := range transportModes {
			t.Run(vname+"/"+mname, func(t *testing.T) {
				v := volume(t)
				s := connect(t, newTarget(t, v), testNQN, mode)
				newModel(v.Info(), rand.New(rand.NewPCG(1, 2))).run(t, s.io, 200)
				s.close()
			})
		}
	}
}

// model is what a volume must hold.
type model struct {
	data  []byte
	block int
	rnd   *rand.Rand
}

func newModel(i blockdev.Info, rnd *rand.Rand) *model {
	return &model{make([]byte, i.Size), i.BlockSize, rnd}
}

func (m *model) run(t *testing.T, c *fakeConn, n int) {
	for range n {
		blocks := 1 + m.rnd.IntN(1+m.rnd.IntN(min(64, c.attr.MaxTransfer/m.block)))
		slba := m.rnd.IntN(len(m.data)/m.block - blocks)
		want := m.data[slba*m.block:][:blocks*m.block]
		buf := make([]byte, len(want)+1)[1:] // not aligned
		cmd := func(op nvme.Opcode, ctl nvme.IOControl) nvme.Command {
			return ioCommand(op, uint64(slba), uint32(blocks), ctl)
		}
		switch m.rnd.IntN(7) {
		case 0, 1:
			c.must(cmd(nvme.OpRead, 0), buf)
			if !bytes.Equal(buf, want) {
				t.Fatalf("read of %d blocks at %d differs", blocks, slba)
			}
		case 2, 3:
			fillRandom(m.rnd, buf)
			w := cmd(nvme.OpWrite, 0)
			if len(buf) <= c.attr.InCapsule {
				w = inCapsule(w, len(buf))
			}
			c.must(w, buf)
			copy(want, buf)
		case 4:
			c.must(cmd(nvme.OpWriteZeroes, nvme.ControlDEAC), nil)
			clear(want)
		case 5:
			copy(buf, want)
			c.must(cmd(nvme.OpCompare, 0), buf)
			buf[m.rnd.IntN(len(buf))] ^= 1
			c.fails(cmd(nvme.OpCompare, 0), buf, nvme.StatusCompareFailure|dnr)
			c.must(cmd(nvme.OpVerify, 0), nil)
		case 6:
			d := nvme.DSMRange{SLBA: uint64(slba), Blocks: uint32(blocks)}
			page := make([]byte, 4096)
			copy(page, d.AppendTo(nil))
			c.must(command(func(c *nvme.Command) { c.SetDSM(1, 1, nvme.DSMDeallocate) }), page)
			clear(want)
			c.must(command(func(c *nvme.Command) { c.SetFlush(1) }), nil)
		}
	}
}

func fillRandom(rnd *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(i) * byte(i>>8)
	}
	b[rnd.IntN(len(b))] = byte(rnd.Uint32())
	b[0] = byte(rnd.Uint32())
}

// dsm returns a command that discards n of the ranges, and its data.
func dsm(n int, r ...nvme.DSMRange) (nvme.Command, []byte) {
	var b []byte
	for _, r := range r {
		b = r.AppendTo(b)
	}
	return command(func(c *nvme.Command) { c.SetDSM(1, n, nvme.DSMDeallocate) }), b
}

func TestIOErrors(t *testing.T) {
	v := newTestVolume(1<<20, 512) // 2048 blocks
	s := connect(t, newTarget(t, v), testNQN)
	defer s.close()
	c := s.io
	big := make([]byte, 1<<20+512)
	const out = nvme.StatusLBAOutOfRange | dnr
	for _, op := range []nvme.Opcode{nvme.OpRead, nvme.OpWrite, nvme.OpCompare} {
		c.fails(ioCommand(op, 2048, 1, 0), big[:512], out)
		c.fails(ioCommand(op, 2047, 2, 0), big[:1024], out)
		c.fails(ioCommand(op, 1<<63, 1, 0), big[:512], out)
		c.fails(ioCommand(op, 1<<64-1, 2, 0), big[:1024], out)
		c.fails(ioCommand(op, 0, 2049, 0), big[:2049*512], out)
		c.fails(ioCommand(op, 0, 2, 0), big[:512], nvme.StatusSGLLengthInvalid|dnr)
		c.fails(ioCommand(op, 0, 1, 0), big[:1024], nvme.StatusSGLLengthInvalid|dnr)
		c.fails(ioCommand(op, 0, 1, 0), nil, nvme.StatusSGLLengthInvalid|dnr)
		bad := ioCommand(op, 0, 1, 0)
		bad.SGL1().SetBlock(nvme.SGLDataBlockAddress, 0x1000, 512)
		c.fails(bad, big[:512], nvme.StatusSGLTypeInvalid|dnr)
		nsid := ioCommand(op, 0, 1, 0)
		for _, id := range []uint32{0, 2, MaxNSID, MaxNSID + 1, 0xfffffffe} {
			nsid.SetNSID(id)
			c.fails(nsid, big[:512], nvme.StatusInvalidNamespace|dnr)
		}
		nsid.SetNSID(nvme.NSIDAll)
		c.fails(nsid, big[:512], nvme.StatusInvalidField|dnr)
	}
	for _, op := range []nvme.Opcode{nvme.OpWriteZeroes, nvme.OpVerify} {
		c.fails(ioCommand(op, 2047, 2, 0), nil, out)
	}
	cmd, data := dsm(1, nvme.DSMRange{SLBA: 2048, Blocks: 1})
	c.fails(cmd, data, out)
	cmd, data = dsm(2, nvme.DSMRange{SLBA: 0, Blocks: 1}, nvme.DSMRange{SLBA: 1, Blocks: 2048})
	c.fails(cmd, data, out)
	c.fails(cmd, data[:16], nvme.StatusSGLLengthInvalid|dnr)
	c.fails(cmd, big[:4112], nvme.StatusSGLLengthInvalid|dnr)
	if slices.Contains(v.ops(), blockdev.OpDiscard) {
		t.Error("a range was discarded before all were checked")
	}
	for _, op := range []nvme.Opcode{nvme.OpKeepAlive, 0x7e, 0x80, 0xff} {
		c.fails(ioCommand(op, 0, 1, 0), nil, nvme.StatusInvalidOpcode|dnr)
	}
	c.fails(getProperty(nvme.PropCAP), nil, nvme.StatusInvalidField|dnr)
	flush := command(func(c *nvme.Command) { c.SetFlush(3) })
	c.fails(flush, nil, nvme.StatusInvalidNamespace|dnr)
}

// TestRangesCounted: discards and zeroes are counted by the ranges that the volume sees.
func TestRangesCounted(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	defer s.close()
	cmd, data := dsm(2, nvme.DSMRange{SLBA: 0, Blocks: 1}, nvme.DSMRange{SLBA: 8, Blocks: 2})
	s.io.must(cmd, data)
	s.io.must(ioCommand(nvme.OpWriteZeroes, 0, 8, 0), nil)
	ns := tg.Snapshot().Subsystems[0].Namespaces[0]
	if ns.Discards != 2 || ns.WriteZeroes != 1 {
		t.Errorf("%d discards and %d write zeroes counted, want 2 and 1", ns.Discards, ns.WriteZeroes)
	}
}

// TestMaxTransfer: MDTS bounds commands that move data, and only those; VSL bounds Verify, which reads data.
func TestMaxTransfer(t *testing.T) {
	v := newTestVolume(4<<20, 512)
	s := connect(t, newTarget(t, v), testNQN)
	defer s.close()
	data := make([]byte, 1<<20+512)
	s.io.must(ioCommand(nvme.OpWrite, 0, 2048, 0), data[:1<<20])
	s.io.must(ioCommand(nvme.OpRead, 0, 2048, 0), data[:1<<20])
	s.io.fails(ioCommand(nvme.OpWrite, 0, 2049, 0), data, nvme.StatusInvalidField|dnr)
	s.io.fails(ioCommand(nvme.OpRead, 0, 2049, 0), data, nvme.StatusInvalidField|dnr)
	s.io.must(ioCommand(nvme.OpWriteZeroes, 0, 8192, 0), nil)
	s.io.must(ioCommand(nvme.OpVerify, 0, 2048, 0), nil)
	s.io.fails(ioCommand(nvme.OpVerify, 0, 2049, 0), nil, nvme.StatusInvalidField|dnr)
}

// TestVolumeErrors: each kind of failure has its status.
func TestVolumeErrors(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s := connect(t, tg, testNQN)
	defer s.close()
	data := make([]byte, 512)
	dsm := command(func(c *nvme.Command) { c.SetDSM(1, 1, nvme.DSMDeallocate) })
	page := make([]byte, 4096)
	copy(page, nvme.DSMRange{Blocks: 1}.AppendTo(nil))
	for _, tc := range []struct {
		err         error
		read, write nvme.Status
	}{
		{blockdev.ErrMedium, nvme.StatusUnrecoveredRead, nvme.StatusWriteFault},
		{blockdev.ErrCapacity, nvme.StatusCapacityExceeded | dnr, nvme.StatusCapacityExceeded | dnr},
		{blockdev.ErrReadOnly, nvme.StatusAccessDenied | dnr, nvme.StatusNamespaceWriteProtected | dnr},
		{blockdev.ErrGone, nvme.StatusNamespaceNotReady | dnr, nvme.StatusNamespaceNotReady | dnr},
		{blockdev.ErrBusy, nvme.StatusNamespaceNotReady, nvme.StatusNamespaceNotReady},
		{blockdev.ErrUnreachable, nvme.StatusNamespaceNotReady, nvme.StatusNamespaceNotReady},
		{blockdev.ErrRange, nvme.StatusLBAOutOfRange | dnr, nvme.StatusLBAOutOfRange | dnr},
		{blockdev.ErrInvalid, nvme.StatusInternalError | dnr, nvme.StatusInternalError | dnr},
		{blockdev.ErrUnsupported, nvme.StatusInvalidOpcode | dnr, nvme.StatusInvalidOpcode | dnr},
		{io.ErrUnexpectedEOF, nvme.StatusInternalError | dnr, nvme.StatusInternalError | dnr},
	} {
		v.setFail(&blockdev.OpError{Op: "test", Path: "test", Offset: -1, Kind: tc.err})
		s.io.fails(ioCommand(nvme.OpRead, 0, 1, 0), data, tc.read)
		s.io.fails(ioCommand(nvme.OpCompare, 0, 1, 0), data, tc.read)
		s.io.fails(ioCommand(nvme.OpVerify, 0, 1, 0), nil, tc.read)
		s.io.fails(ioCommand(nvme.OpWrite, 0, 1, 0), data, tc.write)
		s.io.fails(inCapsule(ioCommand(nvme.OpWrite, 0, 1, 0), 512), data, tc.write)
		s.io.fails(ioCommand(nvme.OpWriteZeroes, 0, 1, 0), nil, tc.write)
		s.io.fails(dsm, page, tc.write)
		s.io.fails(command(func(c *nvme.Command) { c.SetFlush(1) }), nil, tc.write|dnr)
		s.io.fails(command(func(c *nvme.Command) { c.SetFlush(nvme.NSIDAll) }), nil, tc.write|dnr)
	}
	st := tg.Snapshot().Subsystems[0].Namespaces[0]
	// Access Denied is a status of the media type, but the medium is fine.
	if st.MediaErrors != 9 || st.IO.Errors[2] != 9+3 {
		t.Errorf("%d media errors, %d counted by status, want 9 and 12", st.MediaErrors, st.IO.Errors[2])
	}
}

// TestFlags: FUA reaches the volume, DEAC lets it free space, and a Flush of all namespaces
// flushes each.
func TestFlags(t *testing.T) {
	a, b := newTestVolume(1<<20, 512), newTestVolume(1<<20, 512)
	b.late = true
	s := connect(t, newTarget(t, a, b), testNQN)
	defer s.close()
	data := make([]byte, 512)
	s.io.must(ioCommand(nvme.OpWrite, 0, 1, 0), data)
	s.io.must(ioCommand(nvme.OpWriteZeroes, 0, 1, 0), nil)
	if a.fua != 0 {
		t.Error("FUA without FUA")
	}
	s.io.must(ioCommand(nvme.OpWrite, 0, 1, nvme.ControlFUA), data)
	s.io.must(ioCommand(nvme.OpWriteZeroes, 0, 1, nvme.ControlFUA), nil)
	if a.fua != 2 {
		t.Errorf("%d operations with FUA, want 2", a.fua)
	}
	for _, ctl := range []nvme.IOControl{nvme.ControlDEAC, 0} {
		a.fail = func(r *blockdev.Request) error {
			if r.MayUnmap != (ctl == nvme.ControlDEAC) {
				t.Errorf("control %#x: may unmap: %v", uint32(ctl), r.MayUnmap)
			}
			return nil
		}
		s.io.must(ioCommand(nvme.OpWriteZeroes, 0, 1, ctl), nil)
	}
	s.io.must(command(func(c *nvme.Command) { c.SetFlush(nvme.NSIDAll) }), nil)
	for i, v := range []*testVolume{a, b} {
		if ops := v.ops(); len(ops) == 0 || ops[len(ops)-1] != blockdev.OpFlush {
			t.Errorf("namespace %d was not flushed: %v", i+1, ops)
		}
	}
}

// TestDSM: many ranges in one command, empty ones between them, and advice that does nothing.
func TestDSM(t *testing.T) {
	for _, late := range []bool{false, true} {
		v := newTestVolume(1<<20, 512)
		v.late = late
		for i := range v.data {
			v.data[i] = 0xff
		}
		s := connect(t, newTarget(t, v), testNQN)
		var b []byte
		for i := range nvme.MaxDSMRanges {
			b = nvme.DSMRange{SLBA: uint64(2 * i), Blocks: uint32(i & 1)}.AppendTo(b)
		}
		s.io.must(command(func(c *nvme.Command) { c.SetDSM(1, nvme.MaxDSMRanges, nvme.DSMIntegralRead) }), b)
		if v.ops() != nil {
			t.Errorf("advice reached the volume: %v", v.ops())
		}
		s.io.must(command(func(c *nvme.Command) { c.SetDSM(1, nvme.MaxDSMRanges, nvme.DSMDeallocate) }), b)
		if n := len(v.ops()); n != nvme.MaxDSMRanges/2 {
			t.Errorf("%d discards, want %d", n, nvme.MaxDSMRanges/2)
		}
		for lba := range 2 * nvme.MaxDSMRanges {
			want := byte(0xff)
			if lba%4 == 2 {
				want = 0
			}
			if v.data[lba*512] != want {
				t.Fatalf("block %d is %#x, want %#x", lba, v.data[lba*512], want)
			}
		}
		s.close()
	}
}

// TestDSMRanges: a Dataset Management discards the ranges that it names, up to the last block, and no others. Advice
// needs no permission to write, but its ranges are checked as well.
func TestDSMRanges(t *testing.T) {
	v := newTestVolume(1<<20, 512) // 2048 blocks
	for i := range v.data {
		v.data[i] = 0xff
	}
	s := connect(t, newTarget(t, v), testNQN)
	defer s.close()
	// The host sends more ranges than it names, as Linux does.
	cmd, data := dsm(1, nvme.DSMRange{SLBA: 2040, Blocks: 8}, nvme.DSMRange{SLBA: 0, Blocks: 8})
	s.io.must(cmd, data)
	want := append(bytes.Repeat([]byte{0xff}, 2040*512), make([]byte, 8*512)...)
	if !bytes.Equal(v.data, want) {
		t.Error("other blocks are discarded")
	}
	advice := command(func(c *nvme.Command) { c.SetDSM(1, 1, nvme.DSMIntegralRead) })
	for _, r := range []nvme.DSMRange{{SLBA: 2048, Blocks: 1}, {SLBA: 2047, Blocks: 2}, {SLBA: 3000, Blocks: 1}, {SLBA: 1 << 63, Blocks: 1}} {
		s.io.fails(advice, r.AppendTo(nil), nvme.StatusLBAOutOfRange|dnr)
		if e := lastError(s.admin); e.LBA != max(r.SLBA, 2048) {
			t.Errorf("%d blocks at %d: LBA %d is the first in error", r.Blocks, r.SLBA, e.LBA)
		}
	}
	s.admin.must(setFeature(nvme.FeatWriteProtect, 1, writeProtected), nil)
	s.io.fails(cmd, data, nvme.StatusNamespaceWriteProtected|dnr)
	s.io.must(advice, nvme.DSMRange{SLBA: 0, Blocks: 8}.AppendTo(nil))
	if !bytes.Equal(v.data, want) {
		t.Error("a write-protected namespace has changed")
	}

	// A volume that can't discard isn't asked to.
	v = newTestVolume(1<<20, 512)
	v.info.Discard = false
	other := connect(t, newTarget(t, v), testNQN)
	defer other.close()
	other.io.must(cmd, data)
	if ops := v.ops(); len(ops) != 0 {
		t.Errorf("the volume was told %v", ops)
	}
}

func TestWriteProtection(t *testing.T) {
	readOnly := newTestVolume(1<<20, 512)
	readOnly.info.ReadOnly = true
	tg := newTarget(t, newTestVolume(1<<20, 512), readOnly)
	s := connect(t, tg, testNQN)
	defer s.close()
	data := make([]byte, 512)
	page := make([]byte, 4096)
	const protected = nvme.StatusNamespaceWriteProtected | dnr
	refuses := func(nsid uint32) {
		t.Helper()
		for _, op := range []nvme.Opcode{nvme.OpWrite, nvme.OpWriteZeroes} {
			c := ioCommand(op, 0, 1, 0)
			c.SetNSID(nsid)
			s.io.fails(c, data, protected)
		}
		s.io.fails(command(func(c *nvme.Command) { c.SetDSM(nsid, 1, nvme.DSMDeallocate) }), page, protected)
		s.io.fails(command(func(c *nvme.Command) { c.SetCopy(nsid, 100, 1, 0) }), nvme.CopyRange{Blocks: 1}.AppendTo(nil), protected)
		c := ioCommand(nvme.OpRead, 0, 1, 0)
		c.SetNSID(nsid)
		s.io.must(c, data)
		s.admin.must(command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSNamespace, nsid, 0, 0) }), page)
		var id nvme.IdentifyNamespace
		if err := id.Parse(page); err != nil || id.NSATTR&nvme.NSATTRWriteProtected == 0 {
			t.Errorf("namespace %d: NSATTR %#x, %v", nsid, id.NSATTR, err)
		}
	}
	clear(page)
	set := func(nsid, state uint32) nvme.Command {
		return command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatWriteProtect, false, nsid, state) })
	}
	getCommand := func(nsid uint32, sel nvme.SEL) nvme.Command {
		return command(func(c *nvme.Command) { c.SetGetFeatures(nvme.FeatWriteProtect, sel, nsid, 0) })
	}
	get := func(nsid uint32) uint32 {
		t.Helper()
		return s.admin.must(getCommand(nsid, nvme.SELCurrent), nil).DW0()
	}
	s.io.must(ioCommand(nvme.OpWrite, 0, 1, 0), data)
	s.admin.must(set(1, 1), nil)
	refuses(1)
	refuses(2)
	if get(1) != 1 || get(2) != 1 {
		t.Errorf("write protection is %d and %d, want 1 and 1", get(1), get(2))
	}
	for nsid, want := range map[uint32]uint32{1: 0, 2: 1} { // if protection can't be lifted it is the default
		if v := s.admin.must(getCommand(nsid, nvme.SELDefault), nil).DW0(); v != want {
			t.Errorf("write protection of namespace %d is %d by default, want %d", nsid, v, want)
		}
	}
	s.admin.fails(getCommand(3, nvme.SELCurrent), nil, nvme.StatusInvalidNamespace|dnr)
	s.admin.must(set(1, 0), nil)
	s.io.must(ioCommand(nvme.OpWrite, 0, 1, 0), data)
	s.admin.must(set(2, 1), nil)
	s.admin.fails(set(2, 0), nil, nvme.StatusFeatureNotChangeable|dnr)
	s.admin.fails(set(1, 2), nil, nvme.StatusInvalidField|dnr)
	s.admin.fails(set(3, 1), nil, nvme.StatusInvalidNamespace|dnr)
}

// TestViewIsHeld: a response that is sent from the volume's memory holds the memory until it is sent.
func TestViewIsHeld(t *testing.T) {
	tg := newTarget(t, memVolume(t, 1<<20, 4096))
	s := connect(t, tg, testNQN, func(c *fakeConn) { c.holdSent = true })
	writer := s.addQueue(t, tg, 2, testNQN)
	old := bytes.Repeat([]byte{1}, 4096)
	writer.must(ioCommand(nvme.OpWrite, 0, 1, 0), old)

	read := s.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
	read.wait()
	if read.Data[0].Region == nil {
		t.Fatal("the read did not send from the volume's memory")
	}
	write := writer.start(ioCommand(nvme.OpWrite, 0, 1, 0), bytes.Repeat([]byte{2}, 4096))
	if !bytes.Equal(read.Data[0].Bytes, old) {
		t.Error("the data changed while it was being sent")
	}
	// A reader that comes after the writer gets a copy of its own.
	next := s.addQueue(t, tg, 3, testNQN).start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096))
	if st := next.wait().Status(); st != nvme.StatusSuccess {
		t.Errorf("read beside a writer that waits: %#x", uint16(st))
	}
	s.io.release()
	if st := write.wait().Status(); st != nvme.StatusSuccess {
		t.Errorf("write: %#x", uint16(st))
	}
	s.close()
}

// TestCounters: a snapshot's operations, bytes and latencies.
func TestCounters(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	data := make([]byte, 1024)
	for range 3 {
		s.io.must(ioCommand(nvme.OpRead, 0, 2, 0), data)
	}
	s.io.must(ioCommand(nvme.OpWrite, 0, 1, 0), data[:512])
	s.io.must(command(func(c *nvme.Command) { c.SetFlush(1) }), nil)
	s.io.fails(ioCommand(nvme.OpRead, 5000, 1, 0), data[:512], nvme.StatusLBAOutOfRange|dnr)
	check := func(what string, io *IOStats, other uint64) {
		t.Helper()
		got := fmt.Sprint(io.Read.Ops, io.Read.Bytes, io.Write.Ops, io.Write.Bytes, io.Other.Ops, io.Errors)
		want := fmt.Sprint(4, 3*1024, 1, 512, other, [8]uint64{1})
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
		var n uint64
		for _, b := range io.Read.Latency {
			n += b
		}
		if n != 4 || io.Read.Nanos == 0 {
			t.Errorf("%s: %d reads in the histogram, %d ns", what, n, io.Read.Nanos)
		}
	}
	snap := tg.Snapshot()
	sub := snap.Subsystems[0]
	check("namespace", &sub.Namespaces[0].IO, 1)
	q := sub.Controllers[0].Queues[1]
	check("queue", &q.IO, 2) // Flush and Connect
	if q.QID != 1 || q.Depth != 128 || q.InFlight != 0 {
		t.Errorf("queue %d of %d, %d in flight", q.QID, q.Depth, q.InFlight)
	}
	check("transport", &snap.Transports[0].IO, 2+2) // and the admin queue's Connect and CC
	s.close()
	snap = tg.Snapshot()
	check("transport afterwards", &snap.Transports[0].IO, 4)
	if tr := snap.Transports[0]; tr.Connects != 2 || tr.Disconnects != 2 || tr.Failures != 0 || tr.Queues != 0 {
		t.Errorf("transport %+v", tr)
	}
}

// TestGivenBackUncounted: a host that leaves has failed nothing, though its event requests end with its connection, and
// perhaps commands that wait for memory.
func TestGivenBackUncounted(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN, func(c *fakeConn) { c.allocNever = true })
	before := tg.Snapshot()
	event := s.admin.start(asyncEvent(100), nil)
	read := s.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512))
	s.io.hangUp(nil)
	s.admin.hangUp(nil)
	for _, r := range []*fakeRequest{event, read} {
		if st := r.wait().Status(); st != nvme.StatusAbortSQDeleted {
			t.Errorf("given back with %#x", uint16(st))
		}
	}
	after := tg.Snapshot()
	if got := after.Subsystems[0].Namespaces[0].IO; got != (IOStats{}) {
		t.Errorf("the namespace counts %+v", got)
	}
	if got, want := after.Transports[0].IO, before.Transports[0].IO; got != want {
		t.Errorf("the transport counts %+v, want %+v", got, want)
	}
	if n := after.Transports[0].InFlight; n != 0 {
		t.Errorf("%d commands are in flight", n)
	}
}

// TestRetired: a controller keeps the counters of its I/O queues that are gone, one with its connection, one by a
// reset.
func TestRetired(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := connect(t, tg, testNQN)
	defer s.close()
	second := s.addQueue(t, tg, 2, testNQN)
	for _, q := range []*fakeConn{s.io, second} {
		q.must(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512))
	}
	retired := func() uint64 { return tg.Snapshot().Subsystems[0].Controllers[0].Retired.Read.Bytes }
	if n := retired(); n != 0 {
		t.Errorf("%d bytes of queues that are here", n)
	}
	second.hangUp(nil)
	if n := retired(); n != 512 {
		t.Errorf("%d bytes after a queue has gone, want 512", n)
	}
	s.admin.must(setProperty(nvme.PropCC, 0), nil)
	if n := retired(); n != 1024 {
		t.Errorf("%d bytes after a reset, want 1024", n)
	}
}

func TestLatencyBuckets(t *testing.T) {
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, 1023: 0, 1024: 1, 2047: 1, 2048: 2, 1 << 33: 24, 1 << 62: 24} {
		if got := LatencyBucket(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
	for i := range LatencyBuckets - 1 {
		b := LatencyBound(i)
		if LatencyBucket(b-1) != i || LatencyBucket(b) != i+1 {
			t.Errorf("bound %v of bucket %d", b, i)
		}
	}
}

// TestHostDataInPieces: a transport may cut the host's data anywhere.
func TestHostDataInPieces(t *testing.T) {
	const size = 12
	data := []byte("host of data")
	for first := range size {
		for second := first; second <= size; second++ {
			var r Request
			for _, b := range [][]byte{data[:first], data[first:second], data[second:]} {
				r.Data = append(r.Data, blockdev.Segment{Bytes: b})
			}
			for off := range size {
				got := make([]byte, size-off)
				if r.hostData(got, off); !bytes.Equal(got, data[off:]) {
					t.Fatalf("cut at %d and %d, from %d: %q", first, second, off, got)
				}
				for wrong := range len(got) + 1 {
					other := append(bytes.Clone(got), 0)
					other[wrong] ^= 1
					if same := r.hostEqual(other[:len(got)], off); same != wrong {
						t.Fatalf("cut at %d and %d, from %d: %d bytes are equal, not %d", first, second, off, same, wrong)
					}
				}
			}
		}
	}
}
