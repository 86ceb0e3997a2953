package host

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// openNamespace connects to f and opens its namespace.
func openNamespace(t *testing.T, f *fakeTarget) *Namespace {
	t.Helper()
	c := connect(t, f)
	t.Cleanup(func() { closeController(t, c) })
	n, err := c.Namespace(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNamespaceList(t *testing.T) {
	f := newFakeTarget()
	for id := uint32(2); id <= 1030; id++ {
		f.addNamespace(id, 12, 1)
	}
	c := connect(t, f)
	defer closeController(t, c)
	ids, err := c.ActiveNamespaces(t.Context())
	if err != nil || len(ids) != 1030 || ids[0] != 1 || ids[1029] != 1030 {
		t.Errorf("%d namespaces, %v", len(ids), err)
	}
	f.mu.Lock()
	for id := uint32(4); id <= 1030; id++ {
		delete(f.ns, id)
	}
	f.mu.Unlock()
	all, err := c.Namespaces(t.Context())
	if err != nil || len(all) != 3 || all[1].BlockSize() != 4096 || all[0].Size() != 4096*512 || all[2].Descriptors.NGUID[15] != 3 {
		t.Errorf("%d namespaces, %v", len(all), err)
	}
	for _, id := range []uint32{0, 9, nvme.NSIDAll} {
		if _, err := c.Namespace(t.Context(), id); !errors.Is(err, nvme.StatusInvalidNamespace) {
			t.Errorf("namespace %d: %v", id, err)
		}
	}
}

// TestNamespaceUnusable: namespaces that the host can't use are refused, but what the controller says of them can be
// read.
func TestNamespaceUnusable(t *testing.T) {
	f := newFakeTarget()
	f.addNamespace(2, 8, 16)
	f.addNamespace(3, 14, 1) // more than MDTS, 8 KiB
	f.addNamespace(4, 9, 16).identity.LBAF[0].MS = 8
	f.addNamespace(5, 12, 1).identity.NSZE = 1 << 60
	f.addNamespace(6, 9, 16).csi = nvme.CSIZonedNS
	c := connect(t, f)
	defer closeController(t, c)
	for id := uint32(2); id <= 6; id++ {
		if _, err := c.Namespace(t.Context(), id); !errors.Is(err, ErrNamespace) {
			t.Errorf("namespace %d: %v", id, err)
		}
		info, err := c.NamespaceInfo(t.Context(), id)
		if err != nil || info.ID != id || info.Identity != f.ns[id].identity || info.Descriptors.CSI != f.ns[id].csi {
			t.Errorf("what the controller says of namespace %d: %+v, %v", id, info, err)
		}
	}
	f.mu.Lock()
	f.addNamespace(7, 13, 1) // as much as MDTS
	f.mu.Unlock()
	if n, err := c.Namespace(t.Context(), 7); err != nil || n.BlockSize() != 8192 {
		t.Errorf("namespace 7: %v", err)
	}
}

// TestOldDescriptors: the Namespace Identification Descriptor list came with NVMe 1.3. Before, the identifiers were in
// Identify Namespace alone.
func TestOldDescriptors(t *testing.T) {
	for version, lists := range map[nvme.Version]int{nvme.Version1_2_1: 0, nvme.Version1_3: 1} {
		f := newFakeTarget()
		f.identity.VER = version
		c, n := connectNamespace(t, f)
		if n.Descriptors.NGUID != n.Identity.NGUID || n.Identity.NGUID == [16]byte{} || f.commands("Identify (CNS 03h)") != lists {
			t.Errorf("version %v: NGUID %x, of Identify Namespace %x, %d lists", version, n.Descriptors.NGUID, n.Identity.NGUID, f.commands("Identify (CNS 03h)"))
		}
		closeController(t, c)
	}
}

// TestNamespacesUnusable: unusable namespaces don't hide the others, and the error says why for each; if the
// controller is gone there are none.
func TestNamespacesUnusable(t *testing.T) {
	f := newFakeTarget()
	f.addNamespace(2, 9, 16).identity.LBAF[0].MS = 8
	f.addNamespace(3, 9, 16)
	f.addNamespace(4, 8, 16)
	c := connect(t, f)
	defer c.Close()
	all, err := c.Namespaces(t.Context())
	if len(all) != 2 || all[0].ID != 1 || all[1].ID != 3 || !errors.Is(err, ErrNamespace) ||
		!strings.Contains(err.Error(), "namespace 2: ") || !strings.Contains(err.Error(), "namespace 4: ") {
		t.Errorf("%d namespaces, %v", len(all), err)
	}
	f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if r.Cmd.Opcode() == nvme.OpIdentify && r.Cmd.CNS() == nvme.CNSNamespace {
			go f.breakAll(nil)
			return never
		}
		return usual
	})
	if all, err := c.Namespaces(t.Context()); all != nil || !errors.Is(err, ErrLost) {
		t.Errorf("of a lost controller: %d namespaces, %v", len(all), err)
	}
}

// TestTransfers writes and reads ranges of all sizes against a model.
func TestTransfers(t *testing.T) {
	f := newFakeTarget()
	n := openNamespace(t, f)
	model := make([]byte, n.Size())
	for range 300 {
		bs := int64(n.BlockSize())
		off := rand.Int64N(n.Size()/bs) * bs
		length := min(rand.Int64N(400)*bs, n.Size()-off)
		p := make([]byte, length)
		if rand.IntN(2) == 0 {
			for i := range p {
				p[i] = byte(rand.Uint32())
			}
			copy(model[off:], p)
			if got, err := n.WriteAt(t.Context(), p, off); err != nil || got != len(p) {
				t.Fatalf("write: %d, %v", got, err)
			}
			continue
		}
		if got, err := n.ReadAt(t.Context(), p, off); err != nil || got != len(p) {
			t.Fatalf("read: %d, %v", got, err)
		}
		if !bytes.Equal(p, model[off:off+length]) {
			t.Fatalf("%d bytes at %d differ", length, off)
		}
	}
	if !bytes.Equal(f.ns[1].data, model) {
		t.Error("the volume differs from the model")
	}
	if got, err := n.Compare(t.Context(), model, 0); err != nil || got != len(model) {
		t.Errorf("compare: %d, %v", got, err)
	}
	model[100000] ^= 1
	// MDTS is 8 KiB: everything before the part with the difference is known to be equal.
	if got, err := n.Compare(t.Context(), model, 0); !errors.Is(err, nvme.StatusCompareFailure) || got != 100000/8192*8192 {
		t.Errorf("compare: %d, %v", got, err)
	}
	var read, written uint64
	for _, q := range n.ctrl.Queues() {
		read += q.Counters().BytesRead.Load()
		written += q.Counters().BytesWritten.Load()
		if q.Counters().Completed.Load() == 0 {
			t.Errorf("queue %d was not used", q.ID())
		}
	}
	if read == 0 || written == 0 {
		t.Error("bytes are not counted")
	}
}

func TestTransferFailure(t *testing.T) {
	f := newFakeTarget()
	n := openNamespace(t, f)
	f.setHook(func(q *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		if q.attr.QID != 0 && r.Cmd.SLBA() >= 48 {
			cqe.SetStatus(nvme.StatusUnrecoveredRead)
			return answered
		}
		return usual
	})
	got, err := n.ReadAt(t.Context(), make([]byte, 1<<20), 0)
	if got != 48*512 || !errors.Is(err, nvme.StatusUnrecoveredRead) {
		t.Errorf("%d bytes, %v", got, err)
	}
	if n.ctrl.Queues()[0].Counters().MediaErrors.Load()+n.ctrl.Queues()[1].Counters().MediaErrors.Load() == 0 {
		t.Error("media errors are not counted")
	}
}

func TestRanges(t *testing.T) {
	n := openNamespace(t, newFakeTarget())
	for _, c := range []struct{ off, length int64 }{{1, 512}, {0, 1}, {-512, 512}, {n.Size(), 512}, {n.Size() - 512, 1024}, {1<<63 - 512, 512}} {
		if _, err := n.ReadAt(t.Context(), make([]byte, c.length), c.off); !errors.Is(err, ErrRange) {
			t.Errorf("%+v: %v", c, err)
		}
		if err := n.Discard(t.Context(), c.off, c.length); !errors.Is(err, ErrRange) {
			t.Errorf("%+v: %v", c, err)
		}
		if err := n.WriteZeroes(t.Context(), c.off, c.length, false); !errors.Is(err, ErrRange) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := n.ReadAt(t.Context(), make([]byte, 512), -512); !strings.Contains(err.Error(), "negative") {
		t.Errorf("%v, though the offset is of whole blocks", err)
	}
	if got, err := n.ReadAt(t.Context(), nil, n.Size()); got != 0 || err != nil {
		t.Errorf("nothing at the end: %d, %v", got, err)
	}
}

func TestOtherCommands(t *testing.T) {
	f := newFakeTarget()
	n := openNamespace(t, f)
	ns := f.ns[1]
	for i := range ns.data {
		ns.data[i] = 1
	}
	if err := n.WriteZeroes(t.Context(), 512, 40*512, true); err != nil {
		t.Fatal(err)
	}
	// WZSL is 1: 8 KiB, 16 blocks.
	if len(ns.zeroes) != 3 || ns.zeroes[0] != 16 || ns.zeroes[2] != 8 || ns.data[511] != 1 || ns.data[512] != 0 || ns.data[41*512] != 1 {
		t.Errorf("Write Zeroes of %v blocks", ns.zeroes)
	}
	if err := n.Discard(t.Context(), 1024, 2048); err != nil || len(ns.discards) != 1 || ns.discards[0] != (nvme.DSMRange{Blocks: 4, SLBA: 2}) {
		t.Errorf("%v, %v", ns.discards, err)
	}
	if err := n.Flush(t.Context()); err != nil || ns.flushes != 1 {
		t.Errorf("%d flushes, %v", ns.flushes, err)
	}
	if _, err := n.WriteAtFUA(t.Context(), make([]byte, 512), 0); err != nil || ns.data[0] != 0 {
		t.Error(err)
	}
	if err := n.Verify(t.Context(), 0, 512); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}

func BenchmarkReadAt(b *testing.B) {
	f := newFakeTarget()
	c, err := Connect(b.Context(), f.config())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	n, err := c.Namespace(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n.ReadAt(b.Context(), p, 0); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNamespacesWithoutEnd: a controller that lists namespaces without end is given up.
func TestNamespacesWithoutEnd(t *testing.T) {
	f := newFakeTarget()
	c := connect(t, f)
	defer c.Close()
	f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if r.Cmd.Opcode() != nvme.OpIdentify {
			return usual
		}
		var l nvme.NSIDList
		for i := range uint32(nvme.MaxNSIDList) {
			l = append(l, r.Cmd.NSID()+1+i)
		}
		copy(r.Data, l.AppendTo(nil))
		return answered
	})
	if ids, err := c.ActiveNamespaces(t.Context()); !errors.Is(err, ErrController) {
		t.Errorf("%d namespaces, %v", len(ids), err)
	}
}

// TestWriteZeroesInPieces: a range that is longer than one command allows is zeroed from its first block to its
// last, and nothing around it; storage is released only if the caller allows it.
func TestWriteZeroesInPieces(t *testing.T) {
	f := newFakeTarget()
	n := openNamespace(t, f)
	const off, length = 512, 5*8192 + 1024 // WZSL is 8 KiB
	for _, deallocate := range []bool{false, true} {
		model := bytes.Repeat([]byte{0xa5}, int(n.Size()))
		copy(f.ns[1].data, model)
		clear(model[off:][:length])
		var commands, deac atomic.Int32
		f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
			if r.Cmd.Opcode() == nvme.OpWriteZeroes && r.qid != 0 {
				commands.Add(1)
				if r.Cmd.IOControl()&nvme.ControlDEAC != 0 {
					deac.Add(1)
				}
			}
			return usual
		})
		if err := n.WriteZeroes(t.Context(), off, length, deallocate); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.ns[1].data, model) {
			t.Error("other blocks are zero than were to be")
		}
		if c, d := commands.Load(), deac.Load(); c != 6 || (d == c) != deallocate || (d == 0) == deallocate {
			t.Errorf("deallocate %v: %d commands, %d with DEAC", deallocate, c, d)
		}
	}
}

// TestNamespacesOutOfOrder: a list that doesn't ascend is invalid, and isn't followed forever.
func TestNamespacesOutOfOrder(t *testing.T) {
	f := newFakeTarget()
	c := connect(t, f)
	defer c.Close()
	for name, ids := range map[string]func(after, i uint32) uint32{
		"twice":      func(after, i uint32) uint32 { return max(after, 1) + i },
		"descending": func(after, i uint32) uint32 { return after + nvme.MaxNSIDList - i },
	} {
		f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
			if r.Cmd.Opcode() != nvme.OpIdentify {
				return usual
			}
			var l nvme.NSIDList
			for i := range uint32(nvme.MaxNSIDList) {
				l = append(l, ids(r.Cmd.NSID(), i))
			}
			copy(r.Data, l.AppendTo(nil))
			return answered
		})
		if _, err := c.ActiveNamespaces(t.Context()); !errors.Is(err, ErrController) || !strings.Contains(err.Error(), "ascending") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDiscardInPieces: a Dataset Management range is no longer than the controller allows, per range (DMRSL) and
// per command (DMSL).
func TestDiscardInPieces(t *testing.T) {
	for _, c := range []struct {
		limits nvme.IdentifyControllerNVM
		want   []nvme.DSMRange
	}{
		{nvme.IdentifyControllerNVM{}, []nvme.DSMRange{{Blocks: 10, SLBA: 2}}},
		{nvme.IdentifyControllerNVM{DMRSL: 4}, []nvme.DSMRange{{Blocks: 4, SLBA: 2}, {Blocks: 4, SLBA: 6}, {Blocks: 2, SLBA: 10}}},
		{nvme.IdentifyControllerNVM{DMSL: 5}, []nvme.DSMRange{{Blocks: 5, SLBA: 2}, {Blocks: 5, SLBA: 7}}},
		{nvme.IdentifyControllerNVM{DMRSL: 4, DMSL: 9}, []nvme.DSMRange{{Blocks: 4, SLBA: 2}, {Blocks: 4, SLBA: 6}, {Blocks: 2, SLBA: 10}}},
		{nvme.IdentifyControllerNVM{DMRSL: 9, DMSL: 1 << 40}, []nvme.DSMRange{{Blocks: 9, SLBA: 2}, {Blocks: 1, SLBA: 11}}},
	} {
		f := newFakeTarget()
		f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
			if r.qid != 0 || r.Cmd.Opcode() != nvme.OpIdentify || r.Cmd.CNS() != nvme.CNSCommandSetController {
				return usual
			}
			copy(r.Data, c.limits.AppendTo(nil))
			return answered
		})
		n := openNamespace(t, f)
		if err := n.Discard(t.Context(), 2*512, 10*512); err != nil {
			t.Fatal(err)
		}
		if got := f.ns[1].discards; !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.limits, got, c.want)
		}
	}
}

// TestNotInONCS: commands that the controller says it doesn't support aren't sent.
func TestNotInONCS(t *testing.T) {
	f := newFakeTarget()
	f.identity.ONCS = 0
	n := openNamespace(t, f)
	f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if r.qid != 0 {
			t.Errorf("%s was sent", r.Cmd.Name(1))
		}
		return usual
	})
	_, compared := n.Compare(t.Context(), make([]byte, 512), 0)
	_, most := n.MaxDiscard()
	for name, err := range map[string]error{
		"Compare":             compared,
		"MaxDiscard":          most,
		"Discard":             n.Discard(t.Context(), 0, 512),
		"Write Zeroes":        n.WriteZeroes(t.Context(), 0, 512, false),
		"Verify":              n.Verify(t.Context(), 0, 512),
		"Copy":                n.Copy(t.Context(), 0, 512, 512),
		"Write Uncorrectable": n.WriteUncorrectable(t.Context(), 0, 512),
	} {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFailureSaysWhere: if part of a range fails, the error names the namespace, the command and the blocks of that
// part.
func TestFailureSaysWhere(t *testing.T) {
	f := newFakeTarget()
	n := openNamespace(t, f)
	n.ctrl.identity.ONCS |= nvme.ONCSVerify | nvme.ONCSWriteUncorrectable
	n.ctrl.nvm.DMRSL, n.ctrl.nvm.VSL, n.ctrl.nvm.WUSL = 16, 1, 1 // the same number of blocks as MDTS and WZSL allow the other commands
	f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		var d nvme.DSMRange
		if r.Cmd.Opcode() == nvme.OpDSM {
			_ = d.Parse(r.Data)
		}
		if r.qid == 0 || r.Cmd.BlockRange().SLBA != 32 && d.SLBA != 32 {
			return usual
		}
		cqe.SetStatus(nvme.StatusInternalError | nvme.StatusDNR)
		return answered
	})
	const length = 4 * 8192
	b := make([]byte, length)
	_, read := n.ReadAt(t.Context(), b, 0)
	_, written := n.WriteAt(t.Context(), b, 0)
	_, compared := n.Compare(t.Context(), b, 0)
	for name, err := range map[string]error{
		"Read": read, "Write": written, "Compare": compared,
		"Write Zeroes":        n.WriteZeroes(t.Context(), 0, length, false),
		"Verify":              n.Verify(t.Context(), 0, length),
		"Dataset Management":  n.Discard(t.Context(), 0, length),
		"Write Uncorrectable": n.WriteUncorrectable(t.Context(), 0, length),
	} {
		want := "nvme: " + name + " on namespace 1, blocks 32 to 47: internal error (do not retry)"
		if !errors.Is(err, nvme.StatusInternalError) || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestPieceFails: if part of a range fails, the whole range has failed, and the rest isn't tried.
func TestPieceFails(t *testing.T) {
	f := newFakeTarget()
	n := openNamespace(t, f)
	commands := 0
	f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		if r.Cmd.Opcode() != nvme.OpWriteZeroes || r.qid == 0 {
			return usual
		}
		if commands++; commands == 2 {
			cqe.SetStatus(nvme.StatusInternalError)
			return answered
		}
		return usual
	})
	if err := n.WriteZeroes(t.Context(), 0, 4*8192, false); !errors.Is(err, nvme.StatusInternalError) || commands != 2 { // WZSL is 8 KiB
		t.Errorf("%v after %d commands", err, commands)
	}
}

// TestOver: whatever its carrier takes, a command transfers a block at least, and no more than the controller allows.
func TestOver(t *testing.T) {
	n := openNamespace(t, newFakeTarget()) // blocks of 512 bytes, MDTS is 8192
	for most, want := range map[int]int{-1: 512, 0: 512, 1023: 512, 4096: 4096, 8192: 8192, 1 << 41: 8192} {
		if got := n.Over(n.carrier, most).MaxTransfer(); got != want {
			t.Errorf("a command transfers %d bytes where the carrier takes %d, want %d", got, most, want)
		}
	}
}

// TestNamespacesLost: if the controller is lost just when a namespace turns out to have disappeared, the error is that
// of the loss.
func TestNamespacesLost(t *testing.T) {
	f := newFakeTarget()
	f.addNamespace(2, 9, 16)
	f.addNamespace(3, 9, 16)
	c := connect(t, f)
	f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		if r.Cmd.Opcode() != nvme.OpIdentify || r.Cmd.CNS() != nvme.CNSNamespace || r.Cmd.NSID() != 2 {
			return usual
		}
		c.fail(c.lost(errReset)) // its queue is closed when this call has returned
		cqe.SetStatus(nvme.StatusInvalidNamespace | nvme.StatusDNR)
		return answered
	})
	if _, err := c.Namespaces(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("it says %v", err)
	}
	if err := c.Close(); !errors.Is(err, errReset) {
		t.Errorf("Close: %v", err)
	}
}
