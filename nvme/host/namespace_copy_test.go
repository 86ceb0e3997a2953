package host

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// copies are the Copy commands that a controller received, which it executes.
type copies struct {
	mu  sync.Mutex
	all [][]nvme.CopyRange
}

// openCopying opens a namespace with limits of Copy, which its controller has.
func openCopying(t *testing.T, f *fakeTarget, mssrl uint16, mcl uint32, msrc uint8) (*Namespace, *copies) {
	f.identity.ONCS |= nvme.ONCSCopy
	ns := f.ns[1]
	ns.identity.MSSRL, ns.identity.MCL, ns.identity.MSRC = mssrl, mcl, msrc
	c := &copies{}
	f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if r.qid == 0 || r.Cmd.Opcode() != nvme.OpCopy {
			return usual
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		ranges := make([]nvme.CopyRange, r.Cmd.CopyRanges())
		to := r.Cmd.SLBA() * 512
		for i := range ranges {
			_ = ranges[i].Parse(r.Data[i*nvme.CopyRangeSize:])
			from, n := ranges[i].SLBA*512, uint64(ranges[i].Blocks)*512
			copy(ns.data[to:], ns.data[from:from+n])
			to += n
		}
		c.all = append(c.all, ranges)
		return answered
	})
	return openNamespace(t, f), c
}

// TestCopy: a Copy has no more source ranges (MSRC), no longer ones (MSSRL) and no more blocks (MCL) than the
// namespace allows, nor more ranges than one command may transfer (MDTS), and together they copy the range.
func TestCopy(t *testing.T) {
	for name, c := range map[string]struct {
		mssrl  uint16
		mcl    uint32
		msrc   uint8
		blocks []int // of each command's ranges
		ranges []int // of each command
	}{
		"one":                 {mssrl: 100, mcl: 100, msrc: 0, blocks: []int{100}, ranges: []int{1}},
		"by range":            {mssrl: 40, mcl: 1000, msrc: 9, blocks: []int{40, 40, 20}, ranges: []int{3}},
		"by number of ranges": {mssrl: 40, mcl: 1000, msrc: 1, blocks: []int{40, 40, 20}, ranges: []int{2, 1}},
		"by command":          {mssrl: 40, mcl: 50, msrc: 9, blocks: []int{40, 10, 40, 10}, ranges: []int{2, 2}},
		"a range a command":   {mssrl: 40, mcl: 40, msrc: 0, blocks: []int{40, 40, 20}, ranges: []int{1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeTarget()
			n, got := openCopying(t, f, c.mssrl, c.mcl, c.msrc)
			for i := range f.ns[1].data {
				f.ns[1].data[i] = byte(rand.Uint32())
			}
			model := slices.Clone(f.ns[1].data)
			const off, to, length = 7 * 512, 1000 * 512, 100 * 512
			copy(model[to:], model[off:off+length])
			if err := n.Copy(t.Context(), off, to, length); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(f.ns[1].data, model) {
				t.Error("the volume differs from the model")
			}
			var blocks, ranges []int
			for _, command := range got.all {
				ranges = append(ranges, len(command))
				for _, r := range command {
					blocks = append(blocks, int(r.Blocks))
				}
			}
			if !slices.Equal(blocks, c.blocks) || !slices.Equal(ranges, c.ranges) {
				t.Errorf("%v blocks in %v ranges, want %v in %v", blocks, ranges, c.blocks, c.ranges)
			}
		})
	}
	n, got := openCopying(t, newFakeTarget(), 1, 1000, 255)
	n = n.Over(n.carrier, 4096) // as much as 128 ranges
	if err := n.Copy(t.Context(), 0, 1000*512, 200*512); err != nil || len(got.all) != 2 || len(got.all[0]) != 128 {
		t.Errorf("%d commands, %v", len(got.all), err)
	}
}

// TestCopyRefused: what can't be copied isn't sent.
func TestCopyRefused(t *testing.T) {
	n, got := openCopying(t, newFakeTarget(), 40, 40, 0)
	for _, c := range []struct{ off, to, length int64 }{
		{0, 512, 1024}, {512, 0, 1024}, {0, 0, 512}, // they overlap
		{0, 1, 512}, {1, 1024, 512}, {0, 1024, 1}, {0, n.Size() - 512, 1024}, {n.Size() - 512, 0, 1024}, {0, -512, 512},
	} {
		if err := n.Copy(t.Context(), c.off, c.to, c.length); !errors.Is(err, ErrRange) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := n.Copy(t.Context(), 0, 512, 512); err != nil || len(got.all) != 1 { // next to each other
		t.Errorf("%d commands, %v", len(got.all), err)
	}
	for _, limits := range [][2]uint32{{0, 40}, {40, 0}} { // which the specification doesn't allow
		n, got := openCopying(t, newFakeTarget(), uint16(limits[0]), limits[1], 0)
		if err := n.Copy(t.Context(), 0, 512, 512); !errors.Is(err, ErrController) || len(got.all) != 0 {
			t.Errorf("MSSRL and MCL %d: %v", limits, err)
		}
	}
}

// TestCopyFails: the error of a Copy names the source blocks of the command that failed, and the rest isn't tried.
func TestCopyFails(t *testing.T) {
	f := newFakeTarget()
	n, _ := openCopying(t, f, 40, 40, 0)
	sent := 0
	f.setHook(func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		if r.qid == 0 {
			return usual
		}
		if sent++; sent == 2 {
			cqe.SetStatus(nvme.StatusUnrecoveredRead | nvme.StatusDNR)
		}
		return answered
	})
	err := n.Copy(t.Context(), 0, 1000*512, 100*512)
	if !errors.Is(err, nvme.StatusUnrecoveredRead) || !strings.Contains(err.Error(), "Copy on namespace 1, blocks 40 to 79: ") || sent != 2 {
		t.Errorf("%v after %d commands", err, sent)
	}
}
