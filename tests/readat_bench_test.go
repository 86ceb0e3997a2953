package tests

import (
	"fmt"
	"sync"
	"testing"
)

// BenchmarkReadAt is what a program observes that contains host and target and reads 4 KiB at a time from some
// goroutines, each of which waits for its data. The engines of both sides share its processors with them.
func BenchmarkReadAt(b *testing.B) {
	spec, o := memVolume(b)
	remote := servePair(b, spec, o)
	for _, path := range localPaths {
		h := dialPair(b, remote, path)
		for _, readers := range []int{1, 4, 32} {
			b.Run(fmt.Sprintf("%s/%d", path, readers), func(b *testing.B) {
				b.SetBytes(4 << 10)
				b.ReportAllocs()
				readAt(b, h, readers)
			})
		}
		h.close(b)
	}
}

// readAt makes this many goroutines read b.N times in all.
func readAt(b *testing.B, h *hostSide, readers int) {
	ns, err := h.Namespace(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	blocks := ns.Size() / (4 << 10)
	var wg sync.WaitGroup
	for first := range readers {
		data, err := h.Alloc(4 << 10)
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			defer h.Transport.Free(data)
			for i := first; i < b.N; i += readers {
				if _, err := ns.ReadAt(b.Context(), data, int64(i)%blocks*(4<<10)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
