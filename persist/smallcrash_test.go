package persist

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/crash"
)

// smallBlocks is the size of a volume that is small enough to try everything: it has one spare block.
const smallBlocks = 2

// small goes through every short history of a small volume, from every state in which power failures can leave it.
type small struct {
	kind       simKind
	mem, spare []byte
	read       map[string]string // the stamps of an image's blocks
	seen       map[string]bool   // the states
	states     []string          // those that aren't explored yet

	// of the running history
	m      *simMemory
	v      *atomicVolume
	may    [smallBlocks]string // the stamps that a power failure may leave; the last is the block's content
	silent bool                // an earlier history had these points
	during int                 // at this point, others being counted down, a discard is made
	err    error
}

// smallSteps are the steps of a history.
var smallSteps = []struct {
	op       blockdev.Op
	fua      bool
	first, n int    // blocks
	seq      uint64 // the stamp that they get
}{
	{blockdev.OpWrite, false, 0, 1, 1}, {blockdev.OpWrite, false, 1, 1, 1}, {blockdev.OpWrite, false, 0, 2, 2},
	{blockdev.OpWrite, true, 0, 1, 2}, {blockdev.OpDiscard, false, 0, 2, 0}, {blockdev.OpFlush, false, 0, 2, 0},
}

const smallDiscard = 4 // of smallSteps

func smallSuper() *superblock {
	x := layOut(0, headSize, smallBlocks, simBlock, false)
	x.dataBlocks = smallBlocks + 1
	return &superblock{generation: 2, blockSize: simBlock, id: [16]byte{1, 2, 3}, extents: []extentRecord{x}}
}

// group says which words share their fate in a power failure: those of a block, and those of the working map.
func (s *small) group(off int64) int {
	switch x := smallSuper().extents[0]; {
	case uint64(off) < x.workOff:
		return 0
	case uint64(off) < x.dataOff:
		return 1
	}
	return int(off / simBlock)
}

// stamps opens an image and returns what its blocks hold, a digit each. If it is in a new state, that is to be explored.
func (s *small) stamps(image []byte) (found string, err error) {
	if known, ok := s.read[string(image)]; ok {
		return known, nil
	}
	copy(s.spare, image)
	v, err := (&history{kind: s.kind}).open(s.spare, idleLines, func([]byte) error { return nil })
	if err != nil {
		return "", err
	}
	defer v.unmapOwn()
	b := make([]byte, smallBlocks*simBlock)
	err = volumetest.NewClient(v).Read(b, 0)
	for i := 0; i < smallBlocks && err == nil; i++ {
		var seq uint64
		seq, err = crash.ReadStamp(b[i*simBlock:(i+1)*simBlock], uint64(i))
		found += fmt.Sprint(seq)
	}
	if k := state(image); err == nil && !s.seen[k] {
		s.seen[k] = true
		s.states = append(s.states, k)
	}
	s.read[string(image)] = found
	return found, err
}

// state returns an image with all that has no meaning overwritten.
func state(image []byte) string {
	b, x := bytes.Clone(image), smallSuper().extents[0]
	used := []uint64{}
	for i := range x.blocks {
		used = append(used, binary.LittleEndian.Uint64(b[x.tableOff+i*entrySize:])&entryMask)
	}
	junk := bytes.Repeat([]byte{0x55}, simBlock)
	for p := x.workOff / simBlock; p < x.end(simBlock)/simBlock; p++ {
		if !slices.Contains(used, p) {
			copy(b[p*simBlock:], junk)
		}
	}
	return string(b)
}

// point lets the power fail in every way.
func (s *small) point() {
	if s.silent {
		return
	}
	if s.during--; s.during == 0 {
		s.err = errors.Join(s.err, s.step(smallDiscard))
	}
	s.m.observe()
	s.m.m.Each(s.group, func(image []byte) {
		found, err := s.stamps(image)
		for i := range found {
			if !strings.Contains(s.may[i], found[i:i+1]) {
				err = fmt.Errorf("the blocks hold %s, and may hold %q", found, s.may)
			}
		}
		if err != nil && s.err == nil {
			s.err = err
		}
	})
}

// step takes a step, if necessary with flushes that free blocks for it.
func (s *small) step(i int) error {
	x, done := smallSteps[i], make(chan error, 1)
	r := &blockdev.Request{Op: x.op, FUA: x.fua, Offset: int64(x.first) * simBlock, Length: int64(x.n) * simBlock,
		Complete: func(r *blockdev.Request) { done <- r.Err }}
	if x.op == blockdev.OpWrite {
		r.Bufs = [][]byte{stamped(uint64(x.first), x.n, x.seq)}
	}
	may := s.may[x.first : x.first+x.n]
	for i := range may {
		if x.op != blockdev.OpFlush {
			may[i] += fmt.Sprint(x.seq)
		}
	}
	s.v.Submit(r)
	for s.v.waiting.first != nil {
		if err := volumetest.NewClient(s.v).Flush(); err != nil {
			return err
		}
	}
	err := <-done
	for i := range may {
		if x.op == blockdev.OpFlush || x.fua || !s.v.info.VolatileCache {
			may[i] = may[i][len(may[i])-1:]
		}
	}
	return err
}

// run goes through a history that begins with the recovery of an image. The power may fail during the last step.
func (s *small) run(image string, steps []int, faults memFaults) error {
	found, err := s.stamps([]byte(image))
	for i := range found {
		s.may[i] = found[i : i+1]
	}
	s.m, s.silent = newSimMemory(s.mem, []byte(image), int64(smallSuper().extents[0].dataOff), faults), len(steps) > 0
	s.m.point = s.point
	if err == nil {
		s.v, err = (&history{kind: s.kind}).open(s.m.mem, s.m.flusher(), s.m.sync)
	}
	for i := 0; i < len(steps) && err == nil; i++ {
		s.silent = i < len(steps)-1
		err = s.step(steps[i])
	}
	if err == nil {
		s.point()
		s.v.life.Close()
		s.v.pool.Close()
		err = s.v.unmapOwn()
	}
	return errors.Join(err, s.err)
}

// explore goes through all histories.
func (k simKind) explore(t *testing.T, faults memFaults) error {
	size := int(alignUp(smallSuper().end(), areaAlign))
	image := make([]byte, size)
	copy(image, smallSuper().encode())
	s := &small{kind: k, mem: mapped(t, size), spare: mapped(t, size),
		read: map[string]string{}, seen: map[string]bool{}}
	if _, err := s.stamps(image); err != nil {
		return err
	}
	histories := [][]int{{}}
	for i := range smallSteps {
		histories = append(histories, []int{i})
		for j := range smallSteps {
			histories = append(histories, []int{i, j})
		}
	}
	explored := 0
	for ; len(s.states) > 0; explored++ {
		from := s.states[0]
		s.states = s.states[1:]
		for _, steps := range histories {
			if err := s.run(from, steps, faults); err != nil {
				return fmt.Errorf("steps %v: %w", steps, err)
			}
		}
	}
	t.Logf("%d histories from each of %d states, %d images", len(histories), explored, len(s.read))
	return nil
}

// TestSmallCrashes makes the power fail in every way at every point of all short histories, and of the recoveries and
// histories after that.
func TestSmallCrashes(t *testing.T) {
	for _, k := range simKinds {
		t.Run(k.name, func(t *testing.T) {
			if err := k.explore(t, memFaults{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSmallOverlaps: a discard that finds blocks discarded by another, which hasn't ended, is nevertheless durable when it
// has ended. The power fails in every way at every point from then on.
func TestSmallOverlaps(t *testing.T) {
	size := int(alignUp(smallSuper().end(), areaAlign))
	image := make([]byte, size)
	copy(image, smallSuper().encode())
	s := &small{kind: simKinds[0], mem: mapped(t, size), spare: mapped(t, size), read: map[string]string{}, seen: map[string]bool{}}
	points := 0
	for ; s.during <= 0; points++ {
		s.during = points + 1
		if err := s.run(string(image), []int{2, smallDiscard}, memFaults{}); err != nil {
			t.Fatalf("point %d: %v", points, err)
		}
	}
	t.Log(points, "points")
}
