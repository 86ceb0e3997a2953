package persist

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestScarceBlocks: writers of one block, with one free block among them all, make progress while views of it come and
// go. A view that finds the block replaced may be what kept the old one from being free.
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

// TestLateReclaim: if writes in progress have all free blocks, a write may begin to wait before anything has changed
// that a checkpoint could free. It continues when they have ended, though nothing else happens, and so the volume can
// be closed.
func TestLateReclaim(t *testing.T) {
	const blocks = 2048
	path := filepath.Join(t.TempDir(), "v")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(fileSize(blocks*4096, 4096, false)); err != nil {
		t.Fatal(err)
	}
	m, err := mapFile(f, fileSize(blocks*4096, 4096, false), false)
	if err != nil {
		t.Fatal(err)
	}
	m.dax = true // which has the fewest spare blocks
	v, err := openMapped(m, path, blockdev.Options{Size: blocks * 4096}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := volumetest.NewClient(v)
	mustWrite(t, c, make([]byte, blocks*4096), 0, true)
	var loans []blockdev.LoanToken
	for v.free > 0 {
		_, l, err := v.Lend(nil, 4096)
		if err != nil {
			t.Fatal(err)
		}
		loans = append(loans, l)
	}
	if len(loans) >= blocks {
		t.Fatalf("%d blocks are free", len(loans))
	}
	written := make(chan error, 1)
	v.Submit(&blockdev.Request{Op: blockdev.OpWrite, Offset: (blocks - 1) * 4096, Length: 4096, Bufs: [][]byte{block(1)},
		Complete: func(r *blockdev.Request) { written <- r.Err }})
	for i, l := range loans {
		if err := c.Do(blockdev.Request{Op: blockdev.OpWrite, Offset: int64(i) * 4096, Length: 4096, Loan: l}); err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- v.Close() }()
	for what, done := range map[string]chan error{"the write": written, "closing": closed} {
		if err, came := soon.Receive(done); !came || err != nil {
			t.Fatalf("%s: done: %v, with %v", what, came, err)
		}
	}
}

// TestReclaimBeginsInTurn: as soon as it can be seen that a write waits for a checkpoint, that is in progress.
// Otherwise the write could continue by other means, and the volume be closed, before the checkpoint begins in memory
// that is gone.
func TestReclaimBeginsInTurn(t *testing.T) {
	v, _ := cachedVolume(t, 64)
	held := make(chan struct{})
	v.sync = func([]byte) error { <-held; return nil }
	loans := lendAll(t, v)
	c := volumetest.NewClient(v)
	if err := c.Do(blockdev.Request{Op: blockdev.OpWrite, Length: 512, Loan: loans[0]}); err != nil {
		t.Fatal(err)
	}
	written, begun := make(chan error, 1), make(chan bool, 1)
	v.mu.Lock()
	go v.Submit(&blockdev.Request{Op: blockdev.OpWrite, Length: 512, Bufs: [][]byte{block(1)[:512]},
		Complete: func(r *blockdev.Request) { written <- r.Err }})
	const starves = 20 * time.Millisecond // who finds a lock taken again after that is given it before the one before goes on
	time.Sleep(starves)                   // until it waits for the lock
	go func() {
		v.mu.Lock()
		for v.waiting.first == nil { // on a busy machine the write is later
			v.mu.Unlock()
			time.Sleep(time.Millisecond)
			v.mu.Lock()
		}
		defer v.mu.Unlock()
		v.life.Enter() // for the request that joins
		begun <- !v.flushes.Lead(&blockdev.Request{Op: blockdev.OpFlush, Complete: func(*blockdev.Request) {}})
	}()
	time.Sleep(starves) // until it waits for the lock, too
	v.mu.Unlock()
	v.mu.Lock()
	time.Sleep(starves) // until it has found that taken
	v.mu.Unlock()
	if !<-begun {
		t.Fatal("nobody runs a checkpoint that a write waits for")
	}
	close(held)
	for _, l := range loans[1:] {
		v.Return(l)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	end(t, v)
}

// TestWaitsInTurn: a write that is given some of the blocks that it needs keeps its turn for the others.
func TestWaitsInTurn(t *testing.T) {
	v := mustOpen(t, filepath.Join(shm(t), "v"), blockdev.Options{Size: 64 * 512, BlockSize: 512})
	_, one, err := v.Lend(nil, 512)
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := v.Lend(nil, 512)
	if err != nil {
		t.Fatal(err)
	}
	loans := lendAll(t, v)
	var done []string
	write := func(name string, lba, n int64) {
		v.Submit(&blockdev.Request{Op: blockdev.OpWrite, Offset: lba * 512, Length: n * 512, Bufs: [][]byte{block(int(lba))[:n*512]},
			Complete: func(r *blockdev.Request) {
				done = append(done, name)
				if r.Err != nil {
					t.Errorf("%s: %v", name, r.Err)
				}
			}})
	}
	write("first", 1, 2)
	write("second", 3, 1)
	if len(done) > 0 {
		t.Fatalf("%v is done without blocks", done)
	}
	v.Return(one)
	if len(done) > 0 {
		t.Errorf("%v is done with one block", done)
	}
	v.Return(other)
	if !slices.Equal(done, []string{"first"}) {
		t.Errorf("%v is done with two blocks", done)
	}
	for _, l := range loans {
		v.Return(l)
	}
	if !slices.Equal(done, []string{"first", "second"}) {
		t.Errorf("%v is done with all", done)
	}
	mustClose(t, v)
}

// lendAll lends all free blocks, one per loan.
func lendAll(t *testing.T, v *atomicVolume) (loans []blockdev.LoanToken) {
	t.Helper()
	for n := int64(512); v.free > 0; n = min(int64(v.free)*512, v.size.Load()) {
		_, l, err := v.Lend(nil, n)
		if err != nil {
			t.Fatal(err)
		}
		loans = append(loans, l)
	}
	return loans
}
