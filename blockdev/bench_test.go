package blockdev_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/ncw/directio"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// BenchmarkVolume runs reads and writes at random places, with several outstanding.
func BenchmarkVolume(b *testing.B) {
	const size = 64 * mib
	file := func(mode blockdev.IOMode) opener {
		return func(o blockdev.Options) (blockdev.Volume, error) {
			o.IO, o.Preallocate = mode, true
			return blockdev.OpenFile(filepath.Join(b.TempDir(), "v"), o)
		}
	}
	for _, k := range []struct {
		name string
		open opener
	}{
		{"mem", blockdev.NewMemory},
		{"null", blockdev.NewNull},
		{"buffered", file(blockdev.IOBuffered)},
		{"direct", file(blockdev.IODirect)},
	} {
		for _, n := range []int{4096, 128 << 10} {
			for _, depth := range []int{1, 32} {
				for _, op := range []blockdev.Op{blockdev.OpRead, blockdev.OpWrite} {
					b.Run(fmt.Sprintf("%s/%s/%dk/depth=%d", k.name, op, n>>10, depth), func(b *testing.B) {
						benchmark(b, k.open, size, op, n, depth)
					})
				}
			}
		}
	}
}

func benchmark(b *testing.B, open opener, size int64, op blockdev.Op, n, depth int) {
	v, err := open(blockdev.Options{Size: size})
	if err != nil {
		b.Skip(err)
	}
	defer v.Close()
	fill(b, v)
	free := make(chan *blockdev.Request, depth)
	for range depth {
		free <- &blockdev.Request{
			Op: op, Length: int64(n), Bufs: [][]byte{directio.AlignedBlock(n)},
			Complete: func(r *blockdev.Request) { free <- r },
		}
	}
	b.SetBytes(int64(n))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		r := <-free
		if r.Err != nil {
			b.Fatal(r.Err)
		}
		r.Offset = rand.Int64N(size/int64(n)) * int64(n)
		v.Submit(r)
	}
	for range depth {
		<-free
	}
}

// fill writes every block, so that none is read as a hole or faulted in while being timed.
func fill(b *testing.B, v blockdev.Volume) {
	c, data := volumetest.NewClient(v), directio.AlignedBlock(mib)
	for off := int64(0); off < v.Info().Size; off += mib {
		if err := c.Write(data, off, false); err != nil {
			b.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		b.Fatal(err)
	}
}
