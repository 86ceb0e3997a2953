package blockdev

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

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
	v := k.volume(t, d)
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
