package persist

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/crash"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

const (
	simBlocks = 40
	simSpare  = 12
	simBlock  = 512
	simSteps  = 120 // of a history
	simLoans  = 4   // at a time
	simViews  = 2
	// simPoints is how many points are tried for each kind; `make crash` tries more.
	simPoints = 2000
)

// simKind is a way of making stores durable.
type simKind struct {
	name string
	dax  bool
}

var simKinds = []simKind{{"lines", true}, {"msync", false}}

// simSuper lays out a volume of two extents, with few spare blocks so that they are reused often.
func simSuper() *superblock {
	s := &superblock{generation: 1, blockSize: simBlock, id: [16]byte{1, 2, 3}}
	table := uint64(headSize)
	for i, n := range []uint64{simBlocks / 2, simBlocks / 2} {
		x := extentRecord{first: uint64(i) * n, blocks: n, tableOff: table}
		x.workOff = x.tableOff + x.tableBytes()
		x.dataOff = x.workOff + x.tableBytes()
		x.dataBlocks = n + simSpare/2
		s.extents = append(s.extents, x)
		table = alignUp(x.end(simBlock), areaAlign)
	}
	return s
}

// history is a random history of a volume, in which the power may fail anywhere.
type history struct {
	kind   simKind
	rnd    *rand.Rand
	mem    *simMemory
	v      *atomicVolume
	client *volumetest.Client
	ledger *crash.Ledger
	spare  []byte // memory to recover in
	heir   []byte // memory of a program that continues where this one was killed
	busy   [simBlocks]bool
	seq    uint64
	loans  []openLoan
	views  []openView
	depth  int // of operations inside of others' points
	quiet  bool

	most, points int
	err          error
}

type openLoan struct {
	token blockdev.LoanToken
	segs  []blockdev.Segment
	first uint64
	n     int
	seq   uint64
	bytes int // that are filled
}

type openView struct {
	token blockdev.ViewToken
	segs  []blockdev.Segment
	was   []byte
}

// run goes through a history and returns the number of its points.
func (k simKind) run(t testing.TB, seed uint64, most int, faults memFaults) (int, error) {
	s := simSuper()
	size := int(alignUp(s.end(), areaAlign))
	image := make([]byte, size)
	copy(image[superSize:], s.encode())
	h := &history{
		kind: k, rnd: rand.New(rand.NewPCG(seed, 0)), ledger: crash.NewLedger(simBlocks),
		spare: mapped(t, size), heir: mapped(t, size), most: most,
	}
	h.mem = newSimMemory(mapped(t, size), image, int64(s.extents[0].dataOff), faults)
	var err error
	if h.v, err = h.open(h.mem.mem, h.mem.flusher(), h.mem.sync); err != nil {
		return 0, err
	}
	h.client = volumetest.NewClient(h.v)
	h.mem.point = h.point
	for range simSteps {
		h.step()
		h.point()
	}
	h.end()
	return h.points, h.err
}

// open recovers a volume from memory.
func (h *history) open(mem []byte, lines *lineFlusher, sync func([]byte) error) (*atomicVolume, error) {
	m := &mapping{mem: mem, fs: "simulation", dax: h.kind.dax}
	if !h.kind.dax {
		lines = nil
	}
	v, err := openMapped(m, "simulated", blockdev.Options{}, false, lines)
	if err != nil {
		return nil, err
	}
	v.sync = sync
	// No checkpoints except those that the history asks for, or it would not be repeatable: neither when blocks are
	// scarce nor when a change is old, as on a machine that stands still meanwhile.
	v.low = -1
	v.aging.Stop()
	v.aging = time.AfterFunc(settleAfter, func() {})
	return v, nil
}

// end lets go of everything.
func (h *history) end() {
	h.quiet = true
	for len(h.loans) > 0 {
		h.v.Return(h.takeLoan().token)
	}
	for len(h.views) > 0 {
		h.release()
	}
	for h.v.waiting.first != nil { // each flush frees some of the blocks that it waits for
		h.flush()
	}
	h.v.life.Close()
	h.v.pool.Close()
	if err := h.v.unmapOwn(); h.err == nil {
		h.err = err
	}
}

// step does something.
func (h *history) step() {
	switch h.rnd.IntN(12) {
	case 0, 1:
		h.lend()
	case 2, 3:
		h.fill()
	case 4, 5:
		h.commit()
	case 6, 7:
		h.write(blockdev.OpWrite)
	case 8:
		h.write(blockdev.OpDiscard)
	case 9:
		h.view()
	case 10:
		h.release()
	case 11:
		if h.depth == 0 {
			h.flush()
		}
	}
}

// idle chooses a range of blocks that nobody is writing.
func (h *history) idle() (first uint64, n int) {
	for range 10 {
		first = uint64(h.rnd.IntN(simBlocks))
		want := 1 + h.rnd.IntN(4)
		for n = 0; n < want && int(first)+n < simBlocks && !h.busy[int(first)+n]; {
			n++
		}
		if n > 0 {
			return first, n
		}
	}
	return 0, 0
}

// begin records that blocks are being written.
func (h *history) begin(first uint64, n int, seq uint64) {
	for i := range uint64(n) {
		h.busy[first+i] = true
		h.ledger.Begin(first+i, seq)
	}
}

// request returns a request whose completion is recorded. It has FUA only if it need not wait for a free block: submit
// waits for it.
func (h *history) request(op blockdev.Op, first uint64, n int) *blockdev.Request {
	fua := h.depth == 0 && h.rnd.IntN(8) == 0 && op == blockdev.OpWrite && h.v.waiting.first == nil && h.v.free >= n
	return &blockdev.Request{Op: op, FUA: fua, Offset: int64(first) * simBlock, Length: int64(n) * simBlock,
		Complete: func(r *blockdev.Request) {
			if r.Err != nil && h.err == nil {
				h.err = r.Err
			}
			for i := range uint64(n) {
				h.ledger.Done(first+i, r.FUA || !h.v.info.VolatileCache)
				h.busy[first+i] = false
			}
		}}
}

// submit waits for what runs on the pool, so that the history is made by one goroutine at a time.
func (h *history) submit(r *blockdev.Request) {
	if !r.FUA || !h.v.info.VolatileCache {
		h.v.Submit(r)
		return
	}
	done, complete := make(chan struct{}), r.Complete
	r.Complete = func(r *blockdev.Request) { complete(r); close(done) }
	h.depth++ // what happens meanwhile must not wait for it
	h.v.Submit(r)
	<-done
	h.depth--
}

func (h *history) lend() {
	first, n := h.idle()
	if n == 0 || len(h.loans) == simLoans {
		return
	}
	segs, token, err := h.v.Lend(nil, int64(n)*simBlock)
	if err != nil {
		return // busy
	}
	h.seq++
	h.begin(first, n, h.seq)
	h.loans = append(h.loans, openLoan{token, segs, first, n, h.seq, 0})
}

// fill stores some of a loan's data, as it arrives from the network.
func (h *history) fill() {
	if len(h.loans) > 0 {
		x := &h.loans[h.rnd.IntN(len(h.loans))]
		x.put(x.bytes + h.rnd.IntN(x.n*simBlock-x.bytes+1))
	}
}

// put stores a loan's data up to a byte.
func (x *openLoan) put(to int) {
	data := stamped(x.first, x.n, x.seq)
	at := 0
	for _, s := range x.segs {
		from, end := max(at, x.bytes), min(at+len(s.Bytes), to)
		if from < end {
			copy(s.Bytes[from-at:], data[from:end])
		}
		at += len(s.Bytes)
	}
	x.bytes = to
}

// stamped is the content of blocks.
func stamped(first uint64, n int, seq uint64) []byte {
	b := make([]byte, n*simBlock)
	for i := range n {
		crash.Stamp(b[i*simBlock:(i+1)*simBlock], first+uint64(i), seq)
	}
	return b
}

func (h *history) takeLoan() openLoan {
	i := h.rnd.IntN(len(h.loans))
	x := h.loans[i]
	h.loans = append(h.loans[:i], h.loans[i+1:]...)
	return x
}

// commit ends a loan, usually by submitting it.
func (h *history) commit() {
	if len(h.loans) == 0 {
		return
	}
	x := h.takeLoan()
	r := h.request(blockdev.OpWrite, x.first, x.n)
	if h.rnd.IntN(6) == 0 {
		h.v.Return(x.token)
		for i := range uint64(x.n) { // the block is as it was
			h.ledger.Failed(x.first + i)
			h.busy[x.first+i] = false
		}
		return
	}
	x.put(x.n * simBlock)
	r.Loan = x.token
	h.submit(r)
}

// write writes blocks from buffers, or unmaps them.
func (h *history) write(op blockdev.Op) {
	first, n := h.idle()
	if n == 0 {
		return
	}
	r := h.request(op, first, n)
	if op == blockdev.OpWrite {
		h.seq++
		h.begin(first, n, h.seq)
		r.Bufs = [][]byte{stamped(first, n, h.seq)}
	} else {
		h.begin(first, n, 0)
	}
	h.submit(r)
}

// flush is a Flush, which also gives blocks to waiting writes.
func (h *history) flush() {
	floor := h.ledger.BeginFlush()
	h.depth++
	err := h.client.Flush()
	h.depth--
	if err != nil && h.err == nil {
		h.err = err
	}
	h.ledger.Flushed(floor)
}

func (h *history) view() {
	if len(h.views) == simViews {
		return
	}
	first := h.rnd.IntN(simBlocks)
	n := 1 + h.rnd.IntN(min(8, simBlocks-first))
	segs, token, err := h.v.View(nil, int64(first)*simBlock, int64(n)*simBlock)
	if err != nil {
		h.err = errors.Join(h.err, err)
		return
	}
	x := openView{token: token, segs: segs}
	for _, s := range segs {
		x.was = append(x.was, s.Bytes...)
	}
	h.views = append(h.views, x)
}

func (h *history) release() {
	if len(h.views) == 0 {
		return
	}
	x := h.views[0]
	h.views = h.views[1:]
	at := 0
	for _, s := range x.segs {
		if string(s.Bytes) != string(x.was[at:at+len(s.Bytes)]) && h.err == nil {
			h.err = errors.New("the content changed under a view")
		}
		at += len(s.Bytes)
	}
	h.v.Release(x.token)
}

// point is a moment at which the power may fail, the program be killed, or other operations happen.
func (h *history) point() {
	if h.quiet || h.err != nil || h.points >= h.most {
		return
	}
	if h.depth > 0 && h.depth < 3 && h.rnd.IntN(4) == 0 || h.depth == 0 && h.rnd.IntN(8) == 0 {
		h.depth++
		h.step()
		h.depth--
	}
	h.points++
	floor := h.ledger.Floor()
	if err := h.recovered(floor, h.mem.crash(h.rnd)); err != nil && h.err == nil {
		h.err = fmt.Errorf("point %d: %w", h.points, err)
	}
	if h.err == nil && h.rnd.IntN(killEvery) == 0 {
		if err := h.killed(floor); err != nil {
			h.err = fmt.Errorf("point %d, killed: %w", h.points, err)
		}
	}
}

// recovered opens what a power failure left, and checks every block.
func (h *history) recovered(floor crash.Floor, image []byte) error {
	copy(h.spare, image)
	nothing := &lineFlusher{name: "none", line: simLine, flush: func(p unsafe.Pointer, n uintptr) {}, fence: func() {}}
	v, err := h.open(h.spare, nothing, func([]byte) error { return nil })
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	defer v.unmapOwn()
	c := volumetest.NewClient(v)
	all := make([]byte, simBlocks*simBlock)
	if err := c.Read(all, 0); err != nil {
		return err
	}
	if err := h.ledger.CheckAll(floor, all); err != nil {
		return err
	}
	if h.points%16 != 0 {
		return nil
	}
	// Free blocks are in no other use.
	at := h.rnd.IntN(simBlocks - 4)
	fresh := stamped(uint64(at), 4, 1<<40)
	if err := c.Write(fresh, int64(at)*simBlock, false); err != nil {
		return err
	}
	copy(all[at*simBlock:], fresh)
	got := make([]byte, len(all))
	if err := c.Read(got, 0); err != nil {
		return err
	}
	if string(got) != string(all) {
		return errors.New("a write after recovery changed another block")
	}
	return nil
}

// TestCrashes lets the power fail at every point of random histories, and kills the program at some of them.
func TestCrashes(t *testing.T) {
	points := int(fuzzing.Number(t, "NVMEOF_CRASH_POINTS", simPoints))
	seed := fuzzing.Number(t, "NVMEOF_CRASH_SEED", rand.Uint64()>>16)
	for _, k := range simKinds {
		t.Run(k.name, func(t *testing.T) {
			done := 0
			for i := uint64(0); done < points; i++ {
				n, err := k.run(t, seed+i, points-done, memFaults{})
				if done += n; err != nil {
					t.Fatalf("NVMEOF_CRASH_SEED=%d: %v", seed+i, err)
				}
			}
			t.Logf("%d points, seeds from %d on", done, seed)
		})
	}
}

// TestCrashesAreCaught breaks what makes stores durable, in the ways that matter: the same histories must detect each.
func TestCrashesAreCaught(t *testing.T) {
	lines, msync := simKinds[0], simKinds[1]
	for _, x := range []struct {
		name   string
		kind   simKind
		faults memFaults
	}{
		{"no flush", lines, memFaults{noFlush: true}},
		{"no flush of data", lines, memFaults{noDataFlush: true}},
		{"no fence", lines, memFaults{noFence: true}},
		{"no fence before the map", lines, memFaults{oneFence: true}},
		{"map before data", lines, memFaults{mapFirst: true}},
		{"no fsync", msync, memFaults{noSync: true}},
		{"map before data", msync, memFaults{mapFirst: true}},
	} {
		t.Run(x.kind.name+"/"+x.name, func(t *testing.T) {
			if x.kind.explore(t, x.faults) == nil {
				t.Error("short histories noticed nothing")
			}
			for seed := range uint64(20) {
				if _, err := x.kind.run(t, seed, simPoints, x.faults); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("20 histories noticed nothing")
		})
	}
}

// TestCrashSeeds repeats a history by its seed.
func TestCrashSeeds(t *testing.T) {
	for _, k := range simKinds {
		n, err := k.run(t, 7, simPoints, memFaults{noFlush: true, noSync: true}) // so that there is an error to compare
		for range 3 {
			if m, again := k.run(t, 7, simPoints, memFaults{noFlush: true, noSync: true}); m != n || fmt.Sprint(again) != fmt.Sprint(err) {
				t.Errorf("%s: %d points, %v; and then %d, %v", k.name, n, err, m, again)
			}
		}
	}
}
