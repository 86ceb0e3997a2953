package persist

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// BenchmarkTransport is what a transport does for each read and write: a view, and a loan that becomes the content of
// some blocks. The blocks were written in a random order, in writes of their size, as in a volume in use. A memory
// volume, which has no such loans, serves as the baseline for views.
func BenchmarkTransport(b *testing.B) {
	const size = 64 * mib
	for _, kind := range []string{"memory", "in place", "out of place", "DAX"} {
		for _, x := range []struct {
			name  string
			n     int64
			piece int64
		}{{"4k", 4096, 4096}, {"128k", 128 << 10, 128 << 10}, {"128k scattered", 128 << 10, 4096}} {
			b.Run(kind+"/"+x.name, func(b *testing.B) {
				v, err := openKind(b, kind, size)
				if err != nil {
					b.Fatal(err)
				}
				defer v.Close()
				n := x.n
				c, data := volumetest.NewClient(v), make([]byte, x.piece)
				for _, i := range rand.Perm(int(size / x.piece)) {
					if err := c.Write(data, int64(i)*x.piece, false); err != nil {
						b.Fatal(err)
					}
				}
				b.Run("view", func(b *testing.B) { benchmarkView(b, v.(blockdev.Memory), size/n, n) })
				if l, ok := v.(blockdev.Lender); ok {
					b.Run("loan", func(b *testing.B) { benchmarkLoan(b, l, size/n, n) })
				}
			})
		}
	}
}

func openKind(b *testing.B, kind string, size int64) (blockdev.Volume, error) {
	o := blockdev.Options{Size: size}
	path := filepath.Join(b.TempDir(), "v")
	switch kind {
	case "memory":
		return blockdev.Open(fmt.Sprintf("mem:%d", size), blockdev.Options{})
	case "in place":
		return inPlace(path, o)
	case "DAX":
		lines := flusher()
		if lines == nil {
			b.Skip("the processor has no instruction to write a line back")
		}
		return openAtomicDAX(path, o, lines)
	}
	return Open(path, o)
}

func benchmarkView(b *testing.B, v blockdev.Memory, places, n int64) {
	segs := make([]blockdev.Segment, 0, blockdev.MaxSegments)
	b.ReportAllocs()
	defer processorTime(b)()
	for b.Loop() {
		s, t, err := v.View(segs, rand.Int64N(places)*n, n)
		if err != nil {
			b.Fatal(err)
		}
		if len(s) > 0 {
			v.Release(t)
		}
	}
}

func benchmarkLoan(b *testing.B, v blockdev.Lender, places, n int64) {
	segs := make([]blockdev.Segment, 0, blockdev.MaxSegments)
	r := &blockdev.Request{Op: blockdev.OpWrite, Length: n, Complete: func(r *blockdev.Request) {
		if r.Err != nil {
			b.Error(r.Err)
		}
	}}
	b.ReportAllocs()
	defer processorTime(b)()
	for b.Loop() {
		_, t, err := v.Lend(segs, n)
		if err != nil {
			b.Fatal(err)
		}
		r.Loan, r.Offset = t, rand.Int64N(places)*n
		v.Submit(r)
	}
}

// processorTime returns the processor time of this thread, which a busy machine affects less than wall-clock time.
func processorTime(b *testing.B) func() {
	runtime.LockOSThread()
	var from unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &from)
	return func() {
		var to unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_THREAD, &to)
		runtime.UnlockOSThread()
		b.ReportMetric(float64(to.Utime.Nano()+to.Stime.Nano()-from.Utime.Nano()-from.Stime.Nano())/float64(b.N), "cpu-ns/op")
	}
}
