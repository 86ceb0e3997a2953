package blockdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/crash"
)

// halvingDisk is a simDisk that takes a step for each buffer, and two for zeroes. Others may come in between: it keeps
// nobody out.
type halvingDisk struct{ *simDisk }

func (d halvingDisk) transfer(op Op, iov []unix.Iovec, off int64, flags int) (int64, error) {
	var all int64
	for i := range iov {
		n, err := d.simDisk.transfer(op, iov[i:i+1], off+all, flags)
		if all += n; err != nil {
			return 0, err
		}
	}
	return all, nil
}

func (d halvingDisk) allocate(mode uint32, off, n int64) error {
	half := n/2 - 8
	if err := d.simDisk.allocate(mode, off, half); err != nil {
		return err
	}
	return d.simDisk.allocate(mode, off+half, n-half)
}

// TestWholeBlocks: whatever requests of the same blocks are outstanding together, in whichever order the system does the
// parts of each, and whenever one becomes unwanted, a block is read as one of them has written it, and remains so. Every
// request is answered.
func TestWholeBlocks(t *testing.T) {
	for _, k := range []crashKind{
		{name: "page cache", block: 512, writer: true},
		{name: "page cache of a device", block: 512},
		{name: "direct, workers", block: 512, direct: true},
		{name: "direct, asynchronous", block: 512, direct: true, aio: true, faults: simFaults{cut: true}},
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
	m := crash.NewMedium(int64(blocks*k.block), k.block)
	d := halvingDisk{&simDisk{m: m, faults: k.faults, rnd: rand.New(rand.NewPCG(seed, 0))}}
	v := k.volume(d.simDisk)
	v.store = d
	free := make(chan *Request, depth)
	var asked atomic.Int64
	for range depth {
		free <- &Request{
			Unwanted: func() bool { return asked.Add(1)%16 == 0 },
			Complete: func(r *Request) { free <- r },
		}
	}
	begin := func(r *Request, op Op, first, n int) {
		b := make([]byte, n*k.block)
		fillBlocks(b, k.block, d.rnd)
		half := 1 + d.rnd.IntN(len(b)-1)
		r.Op, r.Offset, r.Length, r.Bufs = op, int64(first*k.block), int64(len(b)), [][]byte{b[:half], b[half:]}
		v.Submit(r)
	}
	check := func(r *Request) {
		if r.Err != nil && !errors.Is(r.Err, ErrUnwanted) {
			t.Error(r.Err)
		}
		if r.Op == OpRead && !wholeIn(slices.Concat(r.Bufs...), k.block) {
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
