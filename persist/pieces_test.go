package persist

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// TestPieces: a view may have the maximum number of pieces, in the order of the logical blocks; one that would have
// more is busy, and keeps no block from being reused. The same for a loan.
func TestPieces(t *testing.T) {
	const block, most = 512, blockdev.MaxSegments
	v := mustOpen(t, filepath.Join(shm(t), "v"), blockdev.Options{Size: mib, BlockSize: block})
	c, all := volumetest.NewClient(v), v.free
	var data []byte
	for i := range most + 1 {
		data = append(data, bytes.Repeat([]byte{byte(i + 1)}, block)...)
	}
	for _, odd := range []int{0, 1} { // so that no two consecutive ones are adjacent
		for i := odd; i <= most; i += 2 {
			mustWrite(t, c, data[i*block:][:block], int64(i*block), false)
		}
	}
	before := make([]blockdev.Segment, 1)
	segs, view, err := v.View(before, 0, most*block)
	if err != nil || len(segs) != 1+most {
		t.Fatalf("a view of %d pieces, want %d: %v", len(segs)-1, most, err)
	}
	for i, s := range segs[1:] {
		if !bytes.Equal(s.Bytes, data[i*block:][:block]) {
			t.Errorf("piece %d is of %d bytes that begin with %d", i, len(s.Bytes), s.Bytes[0])
		}
	}
	v.Release(view)
	if segs, _, err := v.View(before, 0, (most+1)*block); !errors.Is(err, blockdev.ErrBusy) || len(segs) != 1 {
		t.Errorf("a view of more: %d pieces, %v", len(segs)-1, err)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Length: (most + 1) * block}); err != nil || v.free != all {
		t.Errorf("%d blocks of %d are free in the end, %v", v.free, all, err)
	}

	_, loan, err := v.Lend(nil, (2*most+1)*block)
	if err != nil {
		t.Fatal(err)
	}
	p := v.slots.pieces(uint64(loan), *v.extents.Load())
	for v.free > 0 { // blocks that aren't given back below are in no other use
		v.take(v.free)
	}
	for i := 0; i < p.all()[0].n; i += 2 {
		v.give(blocks{p.all()[0].x, p.all()[0].first + i, 1})
	}
	if segs, _, err := v.Lend(before, (most+1)*block); !errors.Is(err, blockdev.ErrBusy) || len(segs) != 1 || v.free != most+1 {
		t.Errorf("a loan of %d pieces, of %d blocks: %v", len(segs)-1, v.free, err)
	}
	segs, again, err := v.Lend(before, most*block)
	if err != nil || len(segs) != 1+most || v.free != 1 {
		t.Fatalf("a loan of %d pieces, want %d; %d blocks are left: %v", len(segs)-1, most, v.free, err)
	}
	v.Return(again)
	if v.free != most+1 {
		t.Errorf("%d blocks are free, want %d", v.free, most+1)
	}
	v.life.Leave() // the first loan's, whose blocks have been given back already
	mustClose(t, v)
}

// TestLongPiece: all blocks of a long run that is lent or viewed are known until the end.
func TestLongPiece(t *testing.T) {
	const block, n = 512, tokenCount + 2
	v := mustOpen(t, filepath.Join(shm(t), "v"), blockdev.Options{Size: n * block, BlockSize: block})
	all := v.free
	lend := func() blockdev.LoanToken {
		segs, loan, err := v.Lend(nil, n*block)
		if err != nil || len(segs) != 1 || v.free != all-n {
			t.Fatalf("a loan in %d pieces, and %d blocks of %d are free: %v", len(segs), v.free, all, err)
		}
		return loan
	}
	v.Return(lend())
	if v.free != all {
		t.Errorf("%d blocks of %d are free", v.free, all)
	}
	c := volumetest.NewClient(v)
	if err := c.Do(blockdev.Request{Op: blockdev.OpWrite, Length: n * block, Loan: lend()}); err != nil {
		t.Fatal(err)
	}
	_, view, err := v.View(nil, 0, n*block)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Length: n * block}); err != nil || v.free != all-n {
		t.Errorf("%d blocks of %d are free during a view of the others, %v", v.free, all, err)
	}
	v.Release(view)
	if v.free != all {
		t.Errorf("%d blocks of %d are free in the end", v.free, all)
	}

	// A block behind a long run of zeroes.
	const last = (n - 1) * block
	mustWrite(t, c, make([]byte, block), last, false)
	if _, view, err = v.View(nil, 0, n*block); err != nil {
		t.Fatal(err)
	}
	err = c.Do(blockdev.Request{Op: blockdev.OpDiscard, Offset: last, Length: block})
	if err != nil || v.free != all-1 {
		t.Errorf("%d blocks of %d are free during a view of one, %v", v.free, all, err)
	}
	v.Release(view)
	if v.free != all {
		t.Errorf("%d blocks of %d are free when it has ended", v.free, all)
	}
	mustClose(t, v)
}

// TestLongDiscard: a discard of more blocks than are unmapped at once frees the first and the last of each part.
func TestLongDiscard(t *testing.T) {
	const block, part = 512, 1 << 20
	v := mustOpen(t, filepath.Join(shm(t), "v"), blockdev.Options{Size: (part + 8) * block, BlockSize: block})
	c, all := volumetest.NewClient(v), v.free
	ones, got := bytes.Repeat([]byte{1}, block), make([]byte, block)
	written := []int64{0, part - 1, part, part + 7}
	for _, lba := range written {
		mustWrite(t, c, ones, lba*block, false)
	}
	if err := c.Do(blockdev.Request{Op: blockdev.OpDiscard, Length: (part + 8) * block}); err != nil || v.free != all {
		t.Errorf("%d blocks of %d are free, %v", v.free, all, err)
	}
	for _, lba := range written {
		if err := c.Read(got, lba*block); err != nil || !bytes.Equal(got, make([]byte, block)) {
			t.Errorf("block %d: %d…, %v", lba, got[0], err)
		}
	}
	mustClose(t, v)
}
