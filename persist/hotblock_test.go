package persist

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// TestHotBlock: a block that has the maximum number of views can still be read. The views are released by the reader
// itself, as a transport does when its peer has the data: the read must not wait for that.
func TestHotBlock(t *testing.T) {
	v := mustOpen(t, filepath.Join(t.TempDir(), "volume"), blockdev.Options{Size: 16 * 4096})
	do := func(op blockdev.Op, off int64, b []byte) {
		t.Helper()
		done := make(chan error, 1)
		r := &blockdev.Request{Op: op, Offset: off, Length: int64(len(b)), Bufs: [][]byte{b}}
		r.Complete = func(r *blockdev.Request) { done <- r.Err }
		go v.Submit(r)
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("a request of operation %v waits for the views", op)
		}
	}
	do(blockdev.OpWrite, 4096, slices.Concat(block(1), block(2)))
	var views []blockdev.ViewToken
	for range mostPins {
		_, token, err := v.View(nil, 4096, 4096)
		if err != nil {
			t.Fatal(err)
		}
		views = append(views, token)
	}
	if _, _, err := v.View(nil, 0, 3*4096); !errors.Is(err, blockdev.ErrView) {
		t.Fatalf("one view too many: %v", err)
	}
	read := func(want ...[]byte) {
		t.Helper()
		got := make([]byte, 4*4096)
		if do(blockdev.OpRead, 0, got); !bytes.Equal(got, slices.Concat(want...)) {
			t.Errorf("wrong content: %v", got[4096:4100])
		}
	}
	read(block(0), block(1), block(2), block(0))
	do(blockdev.OpWrite, 4096, block(3))
	read(block(0), block(3), block(2), block(0))
	for _, token := range views {
		v.Release(token)
	}
	mustClose(t, v)
}
