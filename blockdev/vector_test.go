package blockdev

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/crash"
)

// TestBlocksInPieces: a block whose data lies in several buffers is passed to the system in one call, however many
// buffers precede it.
func TestBlocksInPieces(t *testing.T) {
	for _, k := range []crashKind{
		{name: "page cache", block: 4096, writer: true},
		{name: "workers", block: 4096, direct: true},
		{name: "asynchronous", block: 4096, direct: true, aio: true},
	} {
		for _, piece := range []int{31, 512 - 8, 4096 - 512} {
			t.Run(k.name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { inPieces(t, k, piece) }) })
		}
	}
}

// inPieces writes and reads blocks with buffers of a length of which the block size is no multiple.
func inPieces(t *testing.T, k crashKind, piece int) {
	const blocks = 256
	d := &simDisk{m: crash.NewMedium(blocks*4096, 512), rnd: rand.New(rand.NewPCG(1, 2)), whole: 4096}
	v := k.volume(d)
	data := make([]byte, blocks*4096)
	for i := range data {
		data[i] = byte(i * 7 / 5)
	}
	got := make([]byte, len(data))
	done := make(chan error, 1)
	for _, op := range []Op{OpWrite, OpRead} {
		b := data
		if op == OpRead {
			b = got
		}
		go v.Submit(&Request{Op: op, Length: int64(len(b)), Bufs: slices.Collect(slices.Chunk(b, piece)),
			Complete: func(r *Request) { done <- r.Err }})
		for d.step() {
		}
		if err := <-done; err != nil {
			t.Errorf("%v: %v", op, err)
		}
		if d.torn > 0 {
			t.Errorf("%v: %d of %d transfers began or ended within a block", op, d.torn, d.moved)
		}
	}
	if !bytes.Equal(got, data) {
		t.Error("other data was read than written")
	}
	go func() { done <- v.Close() }()
	for d.step() {
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFillIovecs: what one call transfers ends with a whole block, whichever buffer that ends in.
func TestFillIovecs(t *testing.T) {
	v := &file{info: Info{BlockSize: 4096}}
	for _, x := range []struct {
		bufs []int
		done int64
		want []int
	}{
		{[]int{4096, 8192, 4096}, 0, []int{4096, 8192, 4096}},
		{[]int{1000, 4096, 4096, 7192}, 0, []int{1000, 4096, 3096}},
		{[]int{1000, 4096, 4096, 7192}, 4096, []int{1000, 4096, 7192}},
		{[]int{1000, 7192, 100, 200, 300, 7592}, 4096, []int{4096}},
		{[]int{4096, 1000, 1000, 1000, 5192}, 0, []int{4096}},
		{[]int{1000, 1000, 1000, 1096}, 0, nil},
	} {
		r := &Request{done: x.done}
		var all []byte
		for i, n := range x.bufs {
			r.Bufs = append(r.Bufs, bytes.Repeat([]byte{byte(i)}, n))
			all = append(all, r.Bufs[i]...)
		}
		iov := make([]unix.Iovec, 3)
		iov = iov[:v.fillIovecs(iov, r)]
		var got []int
		for _, e := range iov {
			got = append(got, int(e.Len))
			b := unsafe.Slice(e.Base, e.Len)
			if !bytes.Equal(b, all[x.done:][:len(b)]) {
				t.Errorf("%v from %d on: other data", x.bufs, x.done)
			}
			x.done += int64(len(b))
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%v: %v, want %v", x.bufs, got, x.want)
		}
	}
}
