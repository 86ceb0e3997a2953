package tests

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
	"github.com/nvme-anywhere/nvmeof/persist"
)

// watchedVolume counts how a volume that lends its memory is used.
type watchedVolume struct {
	blockdev.Lender
	placed, copied atomic.Int32 // writes whose data was in the volume's memory, and others
	sent, read     atomic.Int32 // reads that were sent from the volume, and others
	strange        atomic.Int32 // pieces of memory outside the volume's mappings
}

// look checks that pieces are parts of the volume's mappings, which transports register.
func (w *watchedVolume) look(segs []blockdev.Segment, lent bool) {
	for _, s := range segs {
		if !slices.Contains(w.Regions(), s.Region) || lent && !s.Region.Lent {
			w.strange.Add(1)
		}
	}
}

func (w *watchedVolume) Submit(r *blockdev.Request) {
	switch {
	case r.Op == blockdev.OpWrite && r.Loan != 0:
		w.placed.Add(1)
	case r.Op == blockdev.OpWrite:
		w.copied.Add(1)
	case r.Op == blockdev.OpRead:
		w.read.Add(1)
	}
	w.Lender.Submit(r)
}

func (w *watchedVolume) View(segs []blockdev.Segment, offset, length int64) ([]blockdev.Segment, blockdev.ViewToken, error) {
	before := len(segs)
	segs, token, err := w.Lender.View(segs, offset, length)
	if err == nil {
		w.look(segs[before:], false)
		w.sent.Add(1)
	}
	return segs, token, err
}

func (w *watchedVolume) Lend(segs []blockdev.Segment, length int64) ([]blockdev.Segment, blockdev.LoanToken, error) {
	before := len(segs)
	segs, token, err := w.Lender.Lend(segs, length)
	if err == nil {
		w.look(segs[before:], true)
	}
	return segs, token, err
}

// TestInPlace: the data of writes to persistent memory is placed in free blocks of its mapping, over RDMA and from a
// TCP socket, and reads are sent from there.
func TestInPlace(t *testing.T) {
	noLeaks(t)
	spec, o := pmemVolume(t)
	v, err := blockdev.Open(spec, o, persist.Kind())
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "volume", v.Close)
	w := &watchedVolume{Lender: v.(blockdev.Lender)}
	_, addr := serveConfig(t, target.Config{Subsystems: []target.SubsystemConfig{
		{NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: w}}},
	}})
	const n, size = 32, 128 << 10 // more than a capsule carries
	for _, transport := range transports {
		h := dialPair(t, addr, transport)
		ns := h.namespace(t, 1)
		w.placed.Store(0)
		w.sent.Store(0)
		got := make([]byte, size)
		for i := range int64(n) {
			data := bytes.Repeat([]byte{byte(i + 1)}, size)
			if _, err := ns.WriteAt(t.Context(), data, i*size); err != nil {
				t.Fatal(err)
			}
			if _, err := ns.ReadAt(t.Context(), got, i*size); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%s: read %d: %v", transport, i, err)
			}
		}
		if w.placed.Load() != n || w.copied.Load() != 0 {
			t.Errorf("%s: of %d writes %d were placed, %d copied", transport, n, w.placed.Load(), w.copied.Load())
		}
		if w.sent.Load() != n || w.read.Load() != 0 {
			t.Errorf("%s: of %d reads %d were sent from the mapping, %d copied", transport, n, w.sent.Load(), w.read.Load())
		}
		if k := w.strange.Load(); k != 0 {
			t.Errorf("%s: %d pieces of memory are no part of a mapping", transport, k)
		}
		h.close(t)
	}
}
