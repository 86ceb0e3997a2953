package blockdev_test

import (
	"fmt"
	"log"
	"sync"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// sparse is a volume that keeps in a map the blocks that were written. The others read as zeroes.
type sparse struct {
	info blockdev.Info
	life *blockdev.Lifetime // lets Close wait for requests

	mu     sync.RWMutex
	blocks map[int64][]byte // by offset
}

func newSparse(o blockdev.Options) (blockdev.Volume, error) {
	err := o.Validate()
	if err == nil {
		o.BlockSize = o.BlockSizeOr(blockdev.DefaultBlockSize)
		err = blockdev.CheckSize(o.Size, o.BlockSize)
	}
	if err != nil {
		return nil, blockdev.OpenError("sparse", blockdev.ErrInvalid, err)
	}
	return &sparse{
		info: blockdev.Info{
			Kind: "sparse", Mode: "a map", Size: o.Size, BlockSize: o.BlockSize, PhysBlock: o.BlockSize, Align: 1,
			ReadOnly: o.ReadOnly, AtomicBlocks: 1, Discard: true, ZeroAfterDiscard: true,
		},
		life:   blockdev.NewLifetime(),
		blocks: make(map[int64][]byte),
	}, nil
}

func (v *sparse) Info() blockdev.Info { return v.info }

// Submit answers at once. A volume that has to wait for something must do that elsewhere, such as in a Pool, and
// complete the request from there.
func (v *sparse) Submit(r *blockdev.Request) {
	if !v.life.Enter() {
		r.End(v.info.Gone(r.Op, r.Offset))
		return
	}
	err := blockdev.Check(&v.info, v.info.Size, r)
	if err == nil {
		v.do(r)
	}
	v.life.Leave()
	r.End(err) // without the lock, because the next request may be submitted inside
}

// do carries out r block by block, each of them whole. Nothing survives the program, so a flush has nothing to do.
func (v *sparse) do(r *blockdev.Request) {
	size := int64(v.info.BlockSize)
	for done := int64(0); done < r.Length; done += size {
		at := r.Offset + done
		switch r.Op {
		case blockdev.OpRead:
			v.mu.RLock()
			if b, ok := v.blocks[at]; ok {
				r.CopyIn(b, done)
			} else {
				r.CopyIn(zeroes[:size], done)
			}
			v.mu.RUnlock()
		case blockdev.OpWrite:
			v.mu.Lock()
			if v.blocks[at] == nil {
				v.blocks[at] = make([]byte, size)
			}
			r.CopyOut(v.blocks[at], done)
			v.mu.Unlock()
		case blockdev.OpDiscard, blockdev.OpWriteZeroes:
			v.mu.Lock()
			delete(v.blocks, at)
			v.mu.Unlock()
		}
	}
}

var zeroes [blockdev.MaxBlockSize]byte

func (v *sparse) Close() error {
	if !v.life.Close() {
		return v.info.Closed("close")
	}
	return nil
}

// A volume of your own implements Volume and, where it applies, Memory, Lender, Registrar or Resizer. A Kind gives it a
// name for Open, so that those of package wrap can be put around it, as with "delay:1ms:sparse:1TiB". The suite in
// package volumetest tells whether it keeps its promises.
func Example_volume() {
	kind := blockdev.Kind{
		Name: "sparse", Form: "sparse:SIZE",
		Open: func(arg string, o blockdev.Options) (_ blockdev.Volume, err error) {
			if o.Size, err = blockdev.ParseSize(arg); err != nil {
				return nil, blockdev.OpenError("sparse", blockdev.ErrInvalid, err)
			}
			return newSparse(o)
		},
	}
	v, err := blockdev.Open("sparse:1TiB", blockdev.Options{}, kind)
	if err != nil {
		log.Fatal(err)
	}
	defer v.Close()
	fmt.Println(blockdev.FormatSize(v.Info().Size))
	_, err = blockdev.Open("sparse:1000", blockdev.Options{}, kind)
	fmt.Println(err)
	// Output:
	// 1.0 TiB
	// open sparse: invalid volume or request: size of 1000 bytes is not a multiple of the block size 4096: take 4096
}
