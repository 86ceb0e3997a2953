package blockdev

import (
	"testing"
	"time"

	"github.com/ncw/directio"

	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// TestAIOAttended: while somebody is on duty it completes what is done, and what it leaves when it goes is
// completed by the queue's own goroutine; each request once.
func TestAIOAttended(t *testing.T) {
	t.Run("io_submit", func(t *testing.T) { testAttended(t, openInternal(t, IODirect)) })
	t.Run("io_uring", func(t *testing.T) { testAttended(t, openInternal(t, IOUring)) })
}

// batch is writes that are submitted together, again and again.
type batch struct {
	all  [32]Request
	done chan error
}

func newBatch() *batch {
	b := &batch{done: make(chan error, len(batch{}.all))}
	mem := directio.AlignedBlock(len(b.all) * 4096)
	for i := range b.all {
		b.all[i] = Request{Op: OpWrite, Offset: int64(i) * 4096, Length: 4096, Bufs: [][]byte{mem[i*4096:][:4096]},
			Complete: func(r *Request) { b.done <- r.Err }}
	}
	return b
}

func (b *batch) submit(v *file) {
	for i := range b.all {
		v.Submit(&b.all[i])
	}
}

// await waits for an answer to each.
func (b *batch) await(t *testing.T) {
	t.Helper()
	for range b.all {
		if err := <-b.done; err != nil {
			t.Fatal(err)
		}
	}
	if len(b.done) > 0 {
		t.Fatal("a request was answered twice")
	}
}

func testAttended(t *testing.T, v *file) {
	if v.aio == nil {
		t.Skip(v.info.Mode)
	}
	a := duty.NewAttendant(func() {}) // whom a slow machine replaces by nobody, so that it goes on itself
	defer a.Close()
	b := newBatch()
	found := 0
	for round := range 50 {
		a.Arrive()
		b.submit(v)
		if round%2 == 0 { // it stays until all is done; otherwise it leaves what it hasn't begun
			for !a.Work() {
			}
			for v.aio.inFlight.Load() > 0 {
				if a.Look() {
					found++
				} else {
					time.Sleep(10 * time.Microsecond)
				}
			}
		}
		a.Leave()
		b.await(t)
	}
	if found == 0 {
		t.Error("whoever is on duty never found anything")
	}
	b.submit(v) // nobody is on duty
	b.await(t)
	if n := v.aio.writing.Load(); n != 0 {
		t.Errorf("%d writes are in the kernel when all are answered", n)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if a.Look() {
		t.Error("something was found after Close")
	}
}
