package persist

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// TestScarceBlocks: writers of one block, with one free block among them all, go on while views of
// it come and go. A view that finds the block replaced may be what kept the old one from being
// free.
func TestScarceBlocks(t *testing.T) {
	v := mustOpen(t, filepath.Join(shm(t), "volume"), blockdev.Options{Size: 16 * 4096})
	var loans []blockdev.LoanToken
	for v.free > 2 {
		_, l, err := v.Lend(nil, 4096)
		if err != nil {
			t.Fatal(err)
		}
		loans = append(loans, l)
	}
	const writers, each = 3, 3000
	stop := make(chan struct{})
	var readers, all sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, token, err := v.View(nil, 0, 4096); err == nil {
					v.Release(token)
				}
			}
		})
	}
	for i := range writers {
		all.Go(func() {
			done := make(chan error, 1)
			r := &blockdev.Request{Op: blockdev.OpWrite, Length: 4096, Bufs: [][]byte{block(i)}}
			r.Complete = func(r *blockdev.Request) { done <- r.Err }
			for k := range each {
				v.Submit(r)
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(time.Minute):
					t.Errorf("write %d of writer %d waits", k, i)
					return
				}
			}
		})
	}
	all.Wait()
	close(stop)
	readers.Wait()
	if t.Failed() {
		return
	}
	for _, l := range loans {
		v.Return(l)
	}
	mustClose(t, v)
}
