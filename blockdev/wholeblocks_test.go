package blockdev

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/crash"
)

// halvingDisk is a simDisk that does everything in two steps, which others may come between: it keeps nobody out.
type halvingDisk struct{ *simDisk }

func (d halvingDisk) transfer(op Op, iov []unix.Iovec, off int64, flags int) (int64, error) {
	b := unsafe.Slice(iov[0].Base, iov[0].Len)
	half := 0
	d.ask(simTransfer, off, int64(op), func() {
		half = d.rnd.IntN(len(b))
		d.part(op, b[:half], off)
	})
	d.ask(simTransfer, off, int64(op), func() { d.part(op, b[half:], off+int64(half)) })
	return int64(len(b)), nil
}

func (d halvingDisk) part(op Op, b []byte, off int64) {
	if op == OpRead {
		d.m.ReadAt(b, off)
	} else {
		d.m.WriteAt(b, off)
	}
}

func (d halvingDisk) allocate(mode uint32, off, n int64) error {
	half := n/2 - 8
	if err := d.simDisk.allocate(mode, off, half); err != nil {
		return err
	}
	return d.simDisk.allocate(mode, off+half, n-half)
}

// TestWholeBlocks: whatever requests of the same blocks are outstanding together, and in whichever order the system does
// the parts of each, a block is read as one of them has written it, and remains so. Every request is answered.
func TestWholeBlocks(t *testing.T) {
	for _, k := range []crashKind{
		{name: "page cache", block: 512, writer: true},
		{name: "page cache of a device", block: 512},
	} {
		for _, ops := range [][]Op{{OpRead, OpWrite, OpWriteZeroes}, {OpWrite, OpDiscard}} {
			for seed := range uint64(6) {
				t.Run(fmt.Sprintf("%s, %v, %d", k.name, ops, seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { wholeBlocks(t, k, ops, seed) })
				})
			}
		}
	}
}

func wholeBlocks(t *testing.T, k crashKind, ops []Op, seed uint64) {
	const blocks, depth, requests = 4, 10, 100
	d := halvingDisk{&simDisk{m: crash.NewMedium(int64(blocks*k.block), k.block), rnd: rand.New(rand.NewPCG(seed, 0))}}
	v := k.volume(d.simDisk)
	v.store = d
	free := make(chan *Request, depth)
	for range depth {
		free <- &Request{Complete: func(r *Request) { free <- r }}
	}
	begin := func(r *Request, op Op, first, n int) {
		b := make([]byte, n*k.block)
		fillBlocks(b, k.block, d.rnd)
		r.Op, r.Offset, r.Length, r.Bufs = op, int64(first*k.block), int64(len(b)), [][]byte{b}
		v.Submit(r)
	}
	check := func(r *Request) {
		if r.Err != nil {
			t.Error(r.Err)
		}
		if r.Op == OpRead && !wholeIn(r.Bufs[0], k.block) {
			t.Errorf("a read at %d found a part of a block", r.Offset)
		}
	}
	for i := 0; i < requests; {
		if len(free) > 0 && d.rnd.IntN(3) > 0 {
			r := <-free
			check(r)
			first := d.rnd.IntN(blocks)
			begin(r, ops[d.rnd.IntN(len(ops))], first, 1+d.rnd.IntN(blocks-first))
			i++
		} else if !d.step() && len(free) < depth {
			panic(fmt.Sprintf("%d requests wait for nothing", depth-len(free))) // nor would the volume close
		}
	}
	for d.step() {
	}
	if len(free) < depth {
		panic(fmt.Sprintf("%d requests were never answered", depth-len(free)))
	}
	for range depth {
		check(<-free)
	}
	last := &Request{Complete: func(r *Request) { free <- r }}
	begin(last, OpRead, 0, blocks)
	for d.step() {
	}
	check(<-free)
	closed := make(chan error, 1)
	go func() { closed <- v.Close() }()
	for d.step() {
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// fillBlocks fills each block with a number of its own, repeated.
func fillBlocks(b []byte, block int, rnd *rand.Rand) {
	for i := 0; i < len(b); i += block {
		x := rnd.Uint64()
		for j := 0; j < block; j += 8 {
			binary.LittleEndian.PutUint64(b[i+j:], x)
		}
	}
}

// wholeIn reports whether each block has one number throughout.
func wholeIn(b []byte, block int) bool {
	for i := 0; i < len(b); i += 8 {
		if binary.LittleEndian.Uint64(b[i:]) != binary.LittleEndian.Uint64(b[i-i%block:]) {
			return false
		}
	}
	return true
}
