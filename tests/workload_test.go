package tests

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

const (
	loadQueues = 4
	loadDepth  = 32
	loadMost   = 1 << 20 // bytes per command
	maxSpans   = 4       // per Dataset Management command
)

// workload keeps loadDepth commands outstanding on each of loadQueues queues of a namespace, of every kind and length,
// and compares the results with a model.
//
// The commands of a slot are chosen by two generators: kinds and lengths depend only on the seed, places also on which
// ranges are free at the time.
type workload struct {
	ns    *host.Namespace
	model *model
	slots []*slot
	// zeroAfter says that discarded blocks read as zeroes.
	zeroAfter bool
	// mayLose says that the connection may be lost: then the effect of commands in flight is unknown.
	mayLose bool

	stamp   *atomic.Uint64 // of the last write
	stop    atomic.Bool
	running sync.WaitGroup // slots
	workers sync.WaitGroup
	counts  [numKinds]atomic.Uint64
	bytes   atomic.Uint64
	lost    atomic.Uint64 // commands cut by the loss of the connection
	first   sync.Once
	err     error // the first; read after wait
}

// kind is what a command of the workload does.
type kind int

const (
	kindRead kind = iota
	kindWrite
	kindWriteFUA
	kindZeroes
	kindZeroesDealloc
	kindDiscard
	kindFlush
	kindCompare
	kindCompareDiffers
	kindVerify
	numKinds
)

var kindNames = [numKinds]string{"read", "write", "write FUA", "write zeroes", "write zeroes DEAC",
	"discard", "flush", "compare", "compare that differs", "verify"}

// weights says how often each kind occurs, relative to their sum.
var weights = [numKinds]int{32, 28, 6, 6, 4, 8, 4, 5, 3, 4}

// changes says that the command must be alone on its blocks.
func (k kind) changes() bool { return k >= kindWrite && k <= kindDiscard }

// slot is one of the commands that are outstanding at a time.
type slot struct {
	w      *workload
	queue  *host.Queue
	choose *rand.Rand // kinds and lengths
	place  *rand.Rand // addresses
	buf    []byte
	lent   bool // buf is the transport's memory
	req    host.Request

	kind  kind
	spans [maxSpans]span
	n     int // of spans
	stamp uint64
}

func newWorkload(t testing.TB, h *hostSide, nsid uint32, m *model, stamp *atomic.Uint64, seed uint64) *workload {
	t.Helper()
	ns := h.namespace(t, nsid)
	if ns.BlockSize() != m.blockSize || ns.Blocks() != uint64(m.blocks()) {
		t.Fatalf("namespace %d has %d blocks of %d bytes, want %d of %d", nsid, ns.Blocks(), ns.BlockSize(), m.blocks(), m.blockSize)
	}
	w := &workload{ns: ns, model: m, stamp: stamp, zeroAfter: ns.Identity.DLFEAT&7 == nvme.DLFEATReadZero}
	for i, q := range h.Queues() {
		// Half the queues submit from Done, the others in batches from a goroutine of their own.
		var ended chan *slot
		if i%2 == 1 {
			ended = make(chan *slot, loadDepth)
		}
		for j := range loadDepth {
			s := &slot{w: w, queue: q,
				choose: rand.New(rand.NewPCG(seed, uint64(i<<16|j))), place: rand.New(rand.NewPCG(^seed, uint64(i<<16|j)))}
			s.memory(t, h, j)
			s.req.Done = func(*host.Request) {
				if ended != nil {
					ended <- s
				} else if s.finish() && s.prepare() {
					q.SubmitOne(&s.req)
				}
			}
			w.slots = append(w.slots, s)
		}
		if ended != nil {
			w.workers.Go(func() { w.batches(q, ended, loadDepth) })
		}
	}
	w.running.Add(len(w.slots))
	return w
}

// memory gives the slot its buffer: most get memory of the transport, some any memory, at an odd address.
func (s *slot) memory(t testing.TB, h *hostSide, j int) {
	if j%8 == 7 {
		s.buf = make([]byte, loadMost+64)[20+j:][:loadMost]
		return
	}
	b, err := h.Alloc(loadMost)
	if err != nil {
		t.Fatal(err)
	}
	s.buf, s.lent = b, true
}

// start submits the first command of every slot.
func (w *workload) start() {
	for _, s := range w.slots {
		if s.prepare() {
			s.queue.SubmitOne(&s.req)
		}
	}
}

// batches submits for the slots of one queue, until all have stopped.
func (w *workload) batches(q *host.Queue, ended <-chan *slot, running int) {
	batch := make([]*host.Request, 0, loadDepth)
	for running > 0 {
		s := <-ended
		for s != nil {
			if s.finish() && s.prepare() {
				batch = append(batch, &s.req)
			} else {
				running--
			}
			select {
			case s = <-ended:
			default:
				s = nil
			}
		}
		q.Submit(batch)
		batch = batch[:0]
	}
}

// wait waits until every slot has stopped, frees the memory and returns the first error.
func (w *workload) wait(h *hostSide) error {
	w.running.Wait()
	w.workers.Wait()
	for _, s := range w.slots {
		if s.lent {
			h.Transport.Free(s.buf)
		}
	}
	return w.err
}

// runFor runs the workload for a time.
func (w *workload) runFor(h *hostSide, d time.Duration) error {
	w.start()
	timer := time.AfterFunc(d, func() { w.stop.Store(true) })
	defer timer.Stop()
	return w.wait(h)
}

// fail keeps the first error and ends the workload.
func (w *workload) fail(s *slot, err error) {
	w.first.Do(func() {
		w.err = fmt.Errorf("queue %d, %s %v: %w", s.queue.ID(), kindNames[s.kind], s.spans[:s.n], err)
	})
	w.stop.Store(true)
}

// prepare makes the next command of a slot and locks its ranges. It returns false when the workload is over.
func (s *slot) prepare() bool {
	w := s.w
	if w.stop.Load() {
		w.running.Done()
		return false
	}
	s.kind = s.pick()
	s.n, s.stamp = 0, 0
	s.req.Data = nil
	switch s.kind {
	case kindFlush:
		s.req.Cmd.SetFlush(w.ns.ID)
		return true
	case kindDiscard:
		s.takeSpans(1 + s.choose.IntN(maxSpans))
		s.discard()
		return true
	default:
	}
	s.takeSpans(1)
	at := s.spans[0]
	data := s.buf[:at.blocks*w.model.blockSize]
	op, ctl := nvme.OpRead, nvme.IOControl(0)
	if (s.kind == kindCompare || s.kind == kindCompareDiffers) && !w.model.known(at) {
		s.kind = kindRead // there is nothing to compare with
	}
	switch s.kind {
	case kindRead:
		poison(data, w.model.blockSize)
		s.req.Data = data
	case kindWrite, kindWriteFUA:
		op, s.req.Data = nvme.OpWrite, data
		if s.kind == kindWriteFUA {
			ctl = nvme.ControlFUA
		}
		s.stamp = w.stamp.Add(1)
		fillSpan(data, at, w.model.blockSize, s.stamp)
	case kindZeroes:
		op = nvme.OpWriteZeroes
	case kindZeroesDealloc:
		op, ctl = nvme.OpWriteZeroes, nvme.ControlDEAC
	case kindVerify:
		op = nvme.OpVerify
	case kindCompare, kindCompareDiffers:
		op, s.req.Data = nvme.OpCompare, data
		w.model.expect(data, at)
		if s.kind == kindCompareDiffers {
			data[s.choose.IntN(len(data))] ^= 1 << s.choose.IntN(8)
		}
	default:
	}
	s.req.Cmd.SetIO(op, w.ns.ID, uint64(at.first), uint32(at.blocks), ctl)
	return true
}

// pick chooses a kind.
func (s *slot) pick() kind {
	sum := 0
	for _, n := range weights {
		sum += n
	}
	at := s.choose.IntN(sum)
	for k, n := range weights {
		if at -= n; at < 0 {
			return kind(k)
		}
	}
	return kindRead
}

// takeSpans chooses n ranges and locks them. Lengths are small as often as large; one for which no place is found is
// halved after a while.
func (s *slot) takeSpans(n int) {
	m := s.w.model
	most := min(loadMost, s.w.ns.MaxTransfer()) / m.blockSize
	for range n {
		e := s.choose.IntN(bits.Len(uint(most)))
		blocks := 1<<e - s.choose.IntN(1<<e)/2
		for try := 1; ; try++ {
			at := span{s.place.IntN(m.blocks() - blocks + 1), blocks}
			if m.lock([]span{at}, s.kind.changes()) {
				s.spans[s.n] = at
				s.n++
				break
			}
			if try%16 == 0 {
				blocks = max(blocks/2, 1)
			}
		}
	}
}

// discard makes a Dataset Management command of the slot's ranges.
func (s *slot) discard() {
	data := s.buf[:0]
	for _, at := range s.spans[:s.n] {
		data = nvme.DSMRange{Blocks: uint32(at.blocks), SLBA: uint64(at.first)}.AppendTo(data)
	}
	s.req.Data = data
	s.req.Cmd.SetDSM(s.w.ns.ID, s.n, nvme.DSMDeallocate)
}

// finish compares the result of a command with the model and unlocks its ranges. It returns false when the slot stops.
func (s *slot) finish() bool {
	w := s.w
	err := s.req.Check()
	spans := s.spans[:s.n]
	if w.mayLose && errors.Is(err, host.ErrLost) {
		if s.kind.changes() {
			w.model.set(spans, stampUnknown)
		}
		w.model.unlock(spans, s.kind.changes())
		w.lost.Add(1)
		w.running.Done()
		return false
	}
	if err := s.outcome(err); err != nil {
		w.fail(s, err)
		w.running.Done()
		return false
	}
	w.model.unlock(spans, s.kind.changes())
	w.counts[s.kind].Add(1)
	for _, at := range spans {
		w.bytes.Add(uint64(at.blocks * w.model.blockSize))
	}
	return true
}

// outcome records what a command changed, or checks what it returned.
func (s *slot) outcome(err error) error {
	m := s.w.model
	spans := s.spans[:s.n]
	if s.kind == kindCompareDiffers {
		if !errors.Is(err, nvme.StatusCompareFailure) {
			return fmt.Errorf("one bit differs, but it ended with %v", err) //nolint:errorlint // there may be none
		}
		return nil
	}
	if err != nil {
		return err
	}
	switch s.kind {
	case kindRead:
		return m.check(s.req.Data, spans[0])
	case kindWrite, kindWriteFUA:
		m.set(spans, s.stamp)
	case kindZeroes, kindZeroesDealloc:
		m.set(spans, stampZero)
	case kindDiscard:
		if s.w.zeroAfter {
			m.set(spans, stampZero)
		} else {
			m.set(spans, stampUnknown)
		}
	default:
	}
	return nil
}

// commands is the number of commands that ended.
func (w *workload) commands() (n uint64) {
	for i := range w.counts {
		n += w.counts[i].Load()
	}
	return n
}

// summary says what was done.
func (w *workload) summary() string {
	s := fmt.Sprintf("%d commands, %d MiB:", w.commands(), w.bytes.Load()>>20)
	for k := range w.counts {
		s += fmt.Sprintf(" %d %s,", w.counts[k].Load(), kindNames[k])
	}
	return s[:len(s)-1]
}
