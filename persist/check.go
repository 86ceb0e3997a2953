package persist

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Report is what Check found.
type Report struct {
	Size       int64  `json:"size"`       // of the volume, in bytes
	FileSize   int64  `json:"file_size"`  // in bytes
	BlockSize  int    `json:"block_size"` // of logical blocks, in bytes
	Version    int    `json:"version"`    // of the format
	Extents    int    `json:"extents"`    // pieces of the file: one at first, and another each time it grew
	Spare      int64  `json:"spare"`      // bytes of blocks beyond Size
	Overhead   int64  `json:"overhead"`   // bytes of the file that aren't blocks, or can't be used
	Generation uint64 `json:"generation"` // of the superblock, increasing with each one that is written
	Used       int    `json:"used"`       // logical blocks that have a block
	Lost       int    `json:"lost"`       // logical blocks whose block is unknown
	// Open: a program that didn't close the volume may have left writes in the working maps, which the next program
	// that opens it will find.
	Open     bool     `json:"open"`
	Supers   []string `json:"supers,omitempty"` // what is wrong with copies of the superblock
	Damage   []Damage `json:"damage,omitempty"` // in the map
	Repaired bool     `json:"repaired"`
}

// Damage is an entry of the map that can't be right, or one of several that can't all be.
type Damage struct {
	Block  uint64 `json:"block"` // logical
	Reason string `json:"reason"`
}

// Clean reports whether nothing is wrong, not even blocks that an earlier repair gave up.
func (r *Report) Clean() bool { return len(r.Supers)+len(r.Damage)+r.Lost == 0 }

// Check reads the volume in the file at path and reports what is wrong with it. With repair it also repairs it: it
// carries over the writes of a program that was killed, rewrites a damaged copy of the superblock, and makes reads of
// logical blocks whose place isn't known fail until they are written. An error means that this wasn't possible, or that
// the file holds no volume.
func Check(path string, repair bool) (*Report, error) {
	f, size, _, err := blockdev.OpenLocked(path, &blockdev.Options{ReadOnly: !repair})
	if err != nil {
		return nil, err
	}
	m, err := mapFile(f, size, !repair)
	if err != nil {
		f.Close()
		return nil, blockdev.OpenError(path, mapKind(err), err)
	}
	r, err := checkMapped(m, path, repair)
	if err := openError(path, errors.Join(err, m.close())); err != nil {
		return nil, err
	}
	return r, nil
}

func checkMapped(m *mapping, path string, repair bool) (*Report, error) {
	s, errs := readSuper(m)
	if s == nil {
		return nil, unusable(m, path, errs)
	}
	open, err := s.session.isOpen(m.file)
	if err != nil {
		return nil, err
	}
	v, err := newAtomic(m, s, path, !repair, flusher())
	if err != nil {
		return nil, err
	}
	r := &Report{
		Size: v.size.Load(), FileSize: int64(len(m.mem)), BlockSize: s.blockSize,
		Version: formatVersion, Extents: len(s.extents), Generation: s.generation,
		Open: open,
	}
	for _, x := range s.extents {
		r.Spare += int64(x.dataBlocks-x.blocks) * int64(s.blockSize)
	}
	r.Overhead = r.FileSize - r.Size - r.Spare
	for i, err := range errs {
		// A volume that was never open for writing has one copy.
		if err != nil && (s.generation > 1 || !errors.Is(err, ErrNoVolume)) {
			r.Supers = append(r.Supers, fmt.Sprintf("copy %d: %v", i, err))
		}
	}
	err = v.inspect(r, repair)
	if err == nil && repair {
		err = v.repair(r)
	}
	return r, errors.Join(err, v.unmapOwn())
}

// inspect counts what the maps contain.
func (v *atomicVolume) inspect(r *Report, repair bool) error {
	for _, x := range *v.extents.Load() {
		if x.table = x.durable; r.Open {
			x.table = x.work // the durable map follows at the end of a repair
		}
	}
	t := v.tally()
	r.Used, r.Lost, r.Damage = t.used, t.lost, t.damage
	r.Repaired = repair && (len(r.Supers)+len(r.Damage) > 0 || r.Open)
	return t.err
}

// repair repairs what inspect found wrong.
func (v *atomicVolume) repair(r *Report) error {
	if err := v.giveUp(r.Damage); err != nil {
		return err
	}
	if r.Open {
		if err := v.replay(); err != nil {
			return err
		}
	}
	if len(r.Supers) > 0 {
		if err := v.writeSuper(v.super); err != nil { // over the damaged one
			return err
		}
	}
	return errors.Join(v.m.sync(), v.m.syncFile())
}

// giveUp marks logical blocks as lost. If two have the same block both are: it isn't known which one it belongs to.
// They are all marked as disputed first, and as lost once that is durable: a power failure in between must not leave
// one of them looking right.
func (v *atomicVolume) giveUp(damage []Damage) (err error) {
	defer v.m.caught(&err, debug.SetPanicOnFault(true))
	xs := *v.extents.Load()
	shared := map[uint64]bool{}
	for _, d := range damage {
		x, i, _ := lookup(xs, d.Block, 1)
		e := native(x.table[i])
		if b, _ := v.place(d.Block, e); b.x != nil || v.isDisputed(d.Block, e) {
			shared[e&entryMask] = true
		}
	}
	if len(shared) > 0 {
		v.eachOf(shared, func(x *extent, i int, lba, p uint64) {
			atomic.StoreUint64(&x.table[i], native(v.disputed(lba, p)))
		})
		if err := v.hardenTables(); err != nil {
			return err
		}
		v.eachOf(shared, func(x *extent, i int, lba, _ uint64) {
			atomic.StoreUint64(&x.table[i], v.entry(lba, lostBlock))
		})
	}
	for _, d := range damage {
		x, i, _ := lookup(xs, d.Block, 1)
		atomic.StoreUint64(&x.table[i], v.entry(d.Block, lostBlock))
	}
	return v.hardenTables()
}

// disputed returns an entry whose check is wrong in a way that hardly occurs by chance: another logical block had the
// same block p.
func (v *atomicVolume) disputed(lba, p uint64) uint64 {
	return p | ^entryCheck(v.salt, lba, p)<<entryBits
}

func (v *atomicVolume) isDisputed(lba, e uint64) bool { return e == v.disputed(lba, e&entryMask) }

// eachOf calls fn with each entry that names one of the blocks.
func (v *atomicVolume) eachOf(blocks map[uint64]bool, fn func(x *extent, i int, lba, p uint64)) {
	for _, x := range *v.extents.Load() {
		for i, e := range x.table {
			if e = native(e); e != 0 && blocks[e&entryMask] {
				fn(x, i, x.rec.first+uint64(i), e&entryMask)
			}
		}
	}
}

// hardenTables makes the maps that requests use durable.
func (v *atomicVolume) hardenTables() error {
	for _, x := range *v.extents.Load() {
		if err := v.harden(bytesOf(x.table)); err != nil {
			return err
		}
	}
	return nil
}

// Holds reports whether the file or device at path looks like a volume that is written out of place.
func Holds(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	b := make([]byte, headSize)
	n, _ := f.ReadAt(b, 0)
	for i := range superCopies {
		if from := i * superSize; bytes.HasPrefix(b[from:max(from, n)], []byte(formatMagic)) {
			return true
		}
	}
	return false
}
