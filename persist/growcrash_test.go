package persist

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

// growing is a volume whose growth is interrupted by power failures, into memory that holds arbitrary data.
type growing struct {
	kind  simKind
	rnd   *rand.Rand
	mem   *simMemory
	grown superblock
	spare []byte
	err   error
}

// run lets it grow.
func (g *growing) run(t *testing.T, faults memFaults) error {
	g.grown = *simSuper()
	rec := g.grown.extents[1]
	size := int(alignUp(g.grown.end(), areaAlign))
	image := make([]byte, size)
	for i := rec.tableOff; i < uint64(size); i++ {
		image[i] = byte(g.rnd.IntN(256))
	}
	s := g.grown
	s.extents = s.extents[:1]
	copy(image[superSize:], s.encode())
	g.mem, g.spare = newSimMemory(mapped(t, size), image, int64(s.extents[0].dataOff), faults), mapped(t, size)
	h := &history{kind: g.kind}
	v, err := h.open(g.mem.mem, g.mem.flusher(), g.mem.sync)
	if err != nil {
		return err
	}
	g.mem.observe()
	g.mem.m.WriteBack(0, int64(size)) // opening it isn't part of this
	g.mem.m.Fence()
	g.mem.point = g.point
	if err := v.record(rec, (*v.extents.Load())[0].region, 0); err != nil {
		return err
	}
	made, err := v.makeExtents((*v.extents.Load())[0].region, 0, []extentRecord{rec})
	if err != nil {
		return err
	}
	v.takeExtents(made)
	g.point()
	if n := g.extents(g.mem.mem); n != 2 && g.err == nil {
		g.err = fmt.Errorf("the superblock names %d extents in the end", n)
	}
	g.mem.point = func() {}
	v.life.Close()
	v.pool.Close()
	return errors.Join(g.err, v.unmapOwn())
}

// extents returns how many extents the copies of the superblock name; the fewest of all copies.
func (g *growing) extents(mem []byte) (n int) {
	for i := range superCopies {
		if s, err := parseSuper(mem[i*superSize:]); err == nil && (n == 0 || len(s.extents) < n) {
			n = len(s.extents)
		}
	}
	return n
}

// point opens what a power failure leaves: a new extent, if there is one, reads as zeroes, and no copy of the superblock
// lacks it from then on.
func (g *growing) point() {
	if g.err != nil {
		return
	}
	copy(g.spare, g.mem.crash(g.rnd))
	h := &history{kind: g.kind}
	nothing := &lineFlusher{name: "none", line: simLine, flush: func(unsafe.Pointer, uintptr) {}, fence: func() {}}
	v, err := h.open(g.spare, nothing, func([]byte) error { return nil })
	if err != nil {
		g.err = fmt.Errorf("recovery: %w", err)
		return
	}
	b := make([]byte, v.Info().Size)
	g.err = volumetest.NewClient(v).Read(b, 0)
	if n := g.extents(g.spare); g.err == nil && n != len(v.super.extents) {
		g.err = fmt.Errorf("the volume has %d extents, and a copy of the superblock names %d", len(v.super.extents), n)
	}
	for i := range b {
		if b[i] != 0 {
			g.err = fmt.Errorf("byte %d of %d isn't zero", i, len(b))
			break
		}
	}
	v.life.Close()
	v.pool.Close()
	g.err = errors.Join(g.err, v.unmapOwn())
}

// TestGrowthCrashes makes the power fail at each moment of growth: the volume has its old size or the new one, and the
// new part reads as zeroes, whatever was there. In the end both superblocks name it.
func TestGrowthCrashes(t *testing.T) {
	for _, k := range simKinds {
		t.Run(k.name, func(t *testing.T) {
			for seed := range uint64(20) {
				if err := (&growing{kind: k, rnd: rand.New(rand.NewPCG(seed, 0))}).run(t, memFaults{}); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

// TestGrowthCrashesAreCaught makes mistakes that the test above must notice.
func TestGrowthCrashesAreCaught(t *testing.T) {
	for i, faults := range []memFaults{{noFlush: true}, {noSync: true}} {
		var err error
		for seed := uint64(0); seed < 20 && err == nil; seed++ {
			err = (&growing{kind: simKinds[i], rnd: rand.New(rand.NewPCG(seed, 0))}).run(t, faults)
		}
		if err == nil {
			t.Errorf("%s: %+v went unnoticed", simKinds[i].name, faults)
		}
	}
}
