package persist

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// Logical blocks of a damaged volume. Those of a group share a block.
var (
	damagedEntry = uint64(9)
	sharedBlocks = [][]uint64{{2, 5}, {12, 13, 30}} // the last is of the other extent
)

// damagedImage is a volume whose block i holds the stamp i+1, except for those above and one that is already lost, and
// one copy of whose superblock is damaged.
func damagedImage() (image []byte, wrong map[uint64]bool) {
	s := simSuper()
	image = make([]byte, alignUp(s.end(), areaAlign))
	s.generation = 4
	copy(image, s.encode())
	copy(image[superSize:], s.encode()[:100])
	block := func(lba uint64) uint64 { // the one of the file where it lies
		x := s.extents[lba/(simBlocks/2)]
		return x.dataOff/simBlock + lba - x.first
	}
	entry := func(lba, e uint64) {
		x := s.extents[lba/(simBlocks/2)]
		binary.LittleEndian.PutUint64(image[x.tableOff+(lba-x.first)*entrySize:], e)
	}
	for lba := range uint64(simBlocks) {
		copy(image[block(lba)*simBlock:], stamped(lba, 1, lba+1))
		entry(lba, s.sealed(lba, block(lba)))
	}
	wrong = map[uint64]bool{damagedEntry: true, 7: true}
	entry(damagedEntry, 0x1234<<entryBits|block(damagedEntry))
	entry(7, s.sealed(7, lostBlock))
	for _, group := range sharedBlocks {
		for _, lba := range group {
			wrong[lba] = true
			entry(lba, s.sealed(lba, block(group[0])))
		}
	}
	return image, wrong
}

// repairing is a repair that is interrupted by power failures.
type repairing struct {
	kind   simKind
	wrong  map[uint64]bool
	rnd    *rand.Rand
	spare  []byte
	points int
	err    error
}

// repair repairs the volume in a memory.
func (k simKind) repair(mem []byte, lines *lineFlusher, sync func([]byte) error) error {
	m := &mapping{mem: mem, fs: "simulation", dax: k.dax}
	s, errs := readSuper(m)
	if s == nil {
		return errors.Join(errs[:]...)
	}
	v, err := newAtomic(m, s, "simulated", false, lines)
	if err != nil {
		return err
	}
	defer v.unmapOwn()
	v.sync = sync
	r := &Report{}
	for _, err := range errs {
		if err != nil {
			r.Supers = append(r.Supers, err.Error())
		}
	}
	return errors.Join(v.inspect(r, true), v.repair(r))
}

// idleLines flush nothing.
var idleLines = &lineFlusher{name: "none", line: simLine, flush: func(unsafe.Pointer, uintptr) {}, fence: func() {}}

// point makes the power fail: what is left is refused, or right; and so is the result of another repair that the power
// doesn't interrupt.
func (r *repairing) point(s *simMemory) {
	r.points++
	for range 4 {
		image := s.crash(r.rnd)
		err := r.look(image, true)
		copy(r.spare, image)
		err = errors.Join(err, r.kind.repair(r.spare, idleLines, func([]byte) error { return nil }))
		if err = errors.Join(err, r.look(bytes.Clone(r.spare), false)); err != nil && r.err == nil {
			r.err = fmt.Errorf("point %d: %w", r.points, err)
		}
	}
}

// look opens an image. Damaged blocks must not be readable, and all others be as they were.
func (r *repairing) look(image []byte, mayRefuse bool) error {
	copy(r.spare, image)
	m := &mapping{mem: r.spare, fs: "simulation", dax: r.kind.dax}
	v, err := openMapped(m, "simulated", blockdev.Options{ReadOnly: true}, false, idleLines)
	if errors.Is(err, blockdev.ErrMedium) && mayRefuse {
		return nil
	}
	if err != nil {
		return err
	}
	defer v.unmapOwn()
	c, b := volumetest.NewClient(v), make([]byte, simBlock)
	for lba := range uint64(simBlocks) {
		err := c.Read(b, int64(lba)*simBlock)
		switch {
		case r.wrong[lba] && !errors.Is(err, blockdev.ErrMedium):
			return fmt.Errorf("block %d, which is wrong, is read: %s", lba, fmt.Sprint(err))
		case !r.wrong[lba] && (err != nil || !bytes.Equal(b, stamped(lba, 1, lba+1))):
			return fmt.Errorf("block %d isn't what it was: %s", lba, fmt.Sprint(err))
		}
	}
	return nil
}

// run repairs a damaged volume, and lets the power fail at every point.
func (r *repairing) run(t *testing.T, faults memFaults) error {
	image, wrong := damagedImage()
	r.wrong, r.spare = wrong, mapped(t, len(image))
	mem := newSimMemory(mapped(t, len(image)), image, int64(simSuper().extents[0].dataOff), faults)
	mem.point = func() { r.point(mem) }
	lines := idleLines
	if r.kind.dax {
		lines = mem.flusher()
	}
	if err := r.kind.repair(mem.mem, lines, mem.sync); err != nil {
		return err
	}
	r.point(mem)
	return r.err
}

// TestRepairCrashes makes the power fail at every point of a repair.
func TestRepairCrashes(t *testing.T) {
	for _, k := range simKinds {
		t.Run(k.name, func(t *testing.T) {
			points := 0
			for seed := range uint64(4) {
				r := &repairing{kind: k, rnd: rand.New(rand.NewPCG(seed, 0))}
				if err := r.run(t, memFaults{}); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				points += r.points
			}
			t.Logf("%d points", points)
		})
	}
}

// TestRepairCrashesAreCaught: the same must notice if nothing becomes durable when it has to.
func TestRepairCrashesAreCaught(t *testing.T) {
	for i, faults := range []memFaults{{noFlush: true}, {noSync: true}} {
		k := simKinds[i]
		t.Run(k.name, func(t *testing.T) {
			for seed := range uint64(30) {
				r := &repairing{kind: k, rnd: rand.New(rand.NewPCG(seed, 0))}
				if err := r.run(t, faults); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("30 repairs noticed nothing")
		})
	}
}
