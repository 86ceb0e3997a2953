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

func testAttended(t *testing.T, v *file) {
	if v.aio == nil {
		t.Skip(v.info.Mode)
	}
	a := duty.NewAttendant(func() {})
	defer a.Close()
	const n = 32
	mem := directio.AlignedBlock(n * 4096)
	done := make(chan error, n)
	var all [n]Request
	for i := range all {
		all[i] = Request{Op: OpWrite, Offset: int64(i) * 4096, Length: 4096, Bufs: [][]byte{mem[i*4096:][:4096]},
			Complete: func(r *Request) { done <- r.Err }}
	}
	await := func() {
		t.Helper()
		for range all {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if len(done) > 0 {
			t.Fatal("a request was answered twice")
		}
	}
	found := 0
	for round := range 50 {
		a.Arrive()
		for i := range all {
			v.Submit(&all[i])
		}
		if round%2 == 0 { // it stays until all is done; otherwise it leaves what it hasn't begun
			if !a.Work() {
				t.Fatal("another took its place")
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
		await()
	}
	if found == 0 {
		t.Error("whoever is on duty never found anything")
	}
	for i := range all { // nobody is on duty
		v.Submit(&all[i])
	}
	await()
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
