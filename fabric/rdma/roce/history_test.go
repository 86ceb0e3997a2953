package roce

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Variables of the random histories.
const (
	soakEnv     = "NVMEOF_SOAK"         // how long to try new seeds ("10m"), or how many ("10000x"); see make soak
	historyEnv  = "NVMEOF_HISTORY_SEED" // the only seed to run
	historyRuns = 60                    // seeds in an ordinary test
)

// historySeeds are seeds that once found a bug. They date from before a WRITE took a SEND along, and stay as they were.
var historySeeds = []uint64{
	39,              // a receiver that wasn't ready dropped what it held, and its RNR NAK was lost
	249708796795925, // all that was missing had been held, and the last ACK was lost
	231305895525905, // the same, after a READ
}

// TestHistories runs random work with random faults, a history for each seed, and compares the result with a model:
// what completed took effect exactly once and in the order of the posts, with the right bytes; what didn't was reported
// as failed, once.
func TestHistories(t *testing.T) {
	if fuzzing.Seeded(t, historyEnv, soakEnv, func(seed uint64) { runHistory(t, seed) }) {
		return
	}
	for _, seed := range historySeeds {
		runHistory(t, seed)
	}
	runs := uint64(historyRuns)
	if testing.Short() {
		runs /= 10
	}
	for seed := range runs {
		runHistory(t, seed)
	}
}

func runHistory(t *testing.T, seed uint64) {
	t.Helper()
	failed := true
	defer func() {
		if failed || t.Failed() {
			t.Logf("the history's seed was %d: %s=%d repeats it", seed, historyEnv, seed)
		}
	}()
	synctest.Test(t, func(t *testing.T) { newHistory(t, seed).run() })
	failed = false
}

// Sizes of a history. Each side's memory holds the words and cells that the peer's requests work on, the buffers of
// receives, and a slot for each of its own requests.
const (
	historyDepth = 16
	historyCells = 8
	slotBytes    = 16 << 10
	cellsAt      = 4096 // words before
	receivesAt   = cellsAt + historyCells*slotBytes
	slotsAt      = receivesAt + historyDepth*slotBytes
	historyBytes = slotsAt + historyDepth*slotBytes

	firstRequest = 1 << 32 // WRIDs of requests are above, those of receives below
)

// history is one run.
type history struct {
	t      *testing.T
	rng    *rand.Rand
	p      *pair
	actors [2]*actor
	pairs  *rand.Rand // nil: a WRITE and the SEND after it are two packets
	crowd  *rand.Rand // nil: only this connection's packets are held
	link   simnet.Link
	cuts   int  // how many may still come
	ended  bool // a connection is broken on purpose
}

// actor is a requester, with a model of what its requests do to the peer.
type actor struct {
	h         *history
	own, peer *side
	others    int // bytes that other queue pairs seem to hold
	toPost    int
	posted    []*posted // not completed, oldest first
	next      uint64    // WRID
	free      []int     // slots

	cells    [historyCells][]byte
	reading  [historyCells]int
	sum      uint64   // of the FetchAdds posted
	sums     []uint64 // … after each of them
	added    int      // how many of them completed
	swapped  uint64   // what the CmpSwps posted leave
	messages []message
	receives []int // buffers of the peer's posted receives, oldest first
	idle     []int // … and of those not posted
	failed   bool
}

// posted is a request that has not completed.
type posted struct {
	wr   verbs.SendWR
	slot int
	cell int
	n    int
	want []byte // READ: the data; atomic: the value found, 8 bytes
	adds bool
}

// message is a SEND or WRITE with immediate in flight.
type message struct {
	data []byte
	imm  uint32
	send bool
}

func newHistory(t *testing.T, seed uint64) *history {
	rng := rand.New(rand.NewPCG(seed, 0x686973746f7279))
	h := &history{t: t, rng: rng, cuts: 3}
	c := pairConfig{
		mtu: verbs.MTU(1 + rng.IntN(5)), psn: rng.Uint32() & 0xffffff, depth: 2 * historyDepth,
		timeout: 18, rnrRetry: 7, rnrTimer: 5, maxRd: uint8(1 + rng.IntN(8)), memory: historyBytes, unsignaled: true,
		endpoint: simnet.Config{MTU: 9000, RecvBuffer: 48<<10 + rng.IntN(200<<10), Coalesce: rng.IntN(2) == 0},
		v6:       rng.IntN(2) == 0,
		foreign:  rng.IntN(3) == 0,
		seed:     seed,
	}
	if rng.IntN(2) == 0 {
		c.psn = 0xffffff - uint32(rng.IntN(40))
	}
	if rng.IntN(2) == 0 {
		c.options = OptionLongSend
	}
	if pairs := rand.New(rand.NewPCG(seed, 0x7061697273)); pairs.IntN(2) == 0 && !slices.Contains(historySeeds, seed) {
		c.options |= OptionWriteSend
		h.pairs = pairs
	}
	if long := rand.New(rand.NewPCG(seed, 0x6c6f6e67)); long.IntN(3) == 0 && !slices.Contains(historySeeds, seed) {
		c.options |= OptionJumboData
	}
	if along := rand.New(rand.NewPCG(seed, 0x61636b73)); along.IntN(2) == 0 && !slices.Contains(historySeeds, seed) {
		c.options |= OptionAckAlong
	}
	if crowd := rand.New(rand.NewPCG(seed, 0x63726f7764)); crowd.IntN(4) == 0 && !slices.Contains(historySeeds, seed) {
		h.crowd = crowd
	}
	if seed&8 != 0 {
		c.wrap = func(c udp.Conn) udp.Conn { return &nearConn{Conn: c} }
	}
	h.link = randomLink(rng, c.v6)
	h.p = newPair(t, c)
	h.p.net.SetDefault(h.link)
	for i, s := range [2][2]*side{{h.p.a, h.p.b}, {h.p.b, h.p.a}} {
		a := &actor{h: h, own: s[0], peer: s[1], toPost: rng.IntN(80), next: firstRequest, sums: []uint64{0}}
		for k := range historyDepth {
			a.free = append(a.free, k)
			a.idle = append(a.idle, k)
		}
		for k := range a.cells {
			a.cells[k] = make([]byte, slotBytes)
		}
		h.actors[i] = a
	}
	return h
}

// randomLink returns a link with faults of some kinds. Bits change only where the ICRC detects every change: over IPv4
// a change of certain bits is taken for another Identification.
func randomLink(rng *rand.Rand, v6 bool) simnet.Link {
	l := simnet.Link{Latency: time.Duration(5+rng.IntN(200)) * time.Microsecond}
	maybe := func(most float64) float64 {
		if rng.IntN(3) > 0 {
			return 0
		}
		return most * rng.Float64()
	}
	l.Loss, l.Duplicate, l.Reorder, l.Mark = maybe(0.08), maybe(0.1), maybe(0.05), maybe(0.2)
	l.Burst = simnet.Burst{Enter: maybe(0.01), Leave: 0.5 + 0.4*rng.Float64()}
	l.ReorderDelay = time.Duration(1+rng.IntN(2000)) * time.Microsecond
	if v6 {
		l.Corrupt = maybe(0.03)
	}
	if rng.IntN(4) == 0 {
		l.Jitter = time.Duration(rng.IntN(100)) * time.Microsecond
	}
	if rng.IntN(3) == 0 {
		l.Bandwidth, l.Queue, l.MarkAbove = 50<<20+rng.Int64N(1<<30), 40<<10+rng.IntN(100<<10), 20<<10
	}
	return l
}

// run takes steps until everything is posted and completed, or the connection is broken.
func (h *history) run() {
	breakAt := -1
	if h.rng.IntN(4) == 0 {
		breakAt = h.rng.IntN(60)
	}
	for step := 0; ; step++ {
		if step == breakAt {
			h.breakIt()
		}
		h.trouble()
		for _, a := range h.actors {
			a.crowd()
			a.post()
			a.replenish()
		}
		// Flushed requests are reported to handlers after they are no longer outstanding, in part by a timer that is
		// due at once.
		time.Sleep(max(time.Duration(h.rng.IntN(2000))*time.Microsecond, time.Microsecond))
		synctest.Wait()
		h.collect()
		if h.finished() {
			break
		}
		if step > 20000 {
			h.t.Fatalf("no end: a %s\nb %s", dump(h.p.a.dev), dump(h.p.b.dev))
		}
	}
	h.judge()
}

// trouble now and then cuts the network for a while, shorter than would end a connection.
func (h *history) trouble() {
	if h.ended || h.cuts == 0 || h.rng.IntN(60) > 0 {
		return
	}
	h.cuts--
	from, to := h.p.a.dev.Attr().Addr, h.p.b.dev.Attr().Addr
	if h.rng.IntN(2) == 0 {
		from, to = to, from
	}
	both := h.rng.IntN(2) == 0
	h.p.net.Cut(from, to)
	if both {
		h.p.net.Cut(to, from)
	}
	time.Sleep(time.Duration(h.rng.IntN(100)) * time.Millisecond)
	h.p.net.Restore(from, to)
	if both {
		h.p.net.Restore(to, from)
	}
}

// crowd has other queue pairs hold so many packets, as far as the device can tell, that there is room for few.
func (a *actor) crowd() {
	crowd := a.h.crowd
	if crowd == nil || crowd.IntN(4) > 0 {
		return
	}
	d := a.own.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	others := maxHeld - crowd.IntN(16*ordinaryPayload)
	d.held += others - a.others
	a.others = others
}

// breakIt ends the connection in one of several ways.
func (h *history) breakIt() {
	h.ended = true
	s := h.actors[h.rng.IntN(2)].own
	switch h.rng.IntN(3) {
	case 0:
		h.p.net.Cut(h.p.a.dev.Attr().Addr, h.p.b.dev.Attr().Addr)
		h.p.net.Cut(h.p.b.dev.Attr().Addr, h.p.a.dev.Attr().Addr)
	case 1:
		check(h.t, s.qp.Modify(verbs.QPAttr{State: verbs.Err}))
	case 2: // the peer sends a request that is refused
		key := s.mr.RKey() + 1
		_, _ = s.qp.PostSend([]verbs.SendWR{{WRID: ^uint64(0), Opcode: verbs.WRRDMAWrite, SGList: s.sge(0, 8), RemoteAddr: 8, RKey: key}})
	}
}

// finished reports whether nothing is outstanding any more.
func (h *history) finished() bool {
	for _, a := range h.actors {
		if h.ended && a.own.dev.qpInfos()[0].Outstanding == 0 && a.own.qp.Query().State != verbs.RTS {
			a.failed = true
			a.dropUnsignaled()
		}
		if a.failed && len(a.posted) == 0 {
			continue
		}
		if len(a.posted) > 0 || !a.failed && (a.toPost > 0 || len(a.messages) > 0 && !h.ended) {
			return false
		}
	}
	return true
}

// dropUnsignaled forgets requests that needn't be reported because they succeeded.
func (a *actor) dropUnsignaled() {
	a.own.mu.Lock()
	defer a.own.mu.Unlock()
	for len(a.own.got) == 0 && len(a.posted) > 0 && a.posted[0].wr.Flags&verbs.SendSignaled == 0 {
		a.posted = a.posted[1:]
	}
}

// post posts some requests.
func (a *actor) post() {
	rng := a.h.rng
	var wrs []verbs.SendWR // posted together
	defer func() {
		if len(wrs) > 0 {
			a.own.post(wrs...)
		}
	}()
	for range rng.IntN(6) {
		if a.failed || a.toPost == 0 || len(a.free) == 0 {
			return
		}
		r := a.make()
		if r == nil {
			return
		}
		if a.own.qp.Query().State != verbs.RTS {
			a.failed = true
			return
		}
		a.toPost--
		a.free = a.free[1:]
		a.next++
		r.wr.WRID = a.next
		if rng.IntN(4) > 0 || len(a.free) == 0 || a.toPost == 0 || r.want != nil {
			r.wr.Flags |= verbs.SendSignaled
		}
		if rng.IntN(8) == 0 {
			r.wr.Flags |= verbs.SendFence
		}
		a.posted = append(a.posted, r)
		if a.h.pairs == nil {
			a.own.post(r.wr)
		} else {
			wrs = append(wrs, r.wr)
		}
	}
}

// make chooses a request, and has the model do the same. It returns nil if the chosen request has to wait.
func (a *actor) make() *posted {
	rng := a.h.rng
	n := rng.IntN(2000)
	if rng.IntN(3) == 0 {
		n = rng.IntN(slotBytes)
	}
	slot, cell, kind := a.free[0], rng.IntN(historyCells), rng.IntN(7)
	if k := len(a.posted); a.h.pairs != nil && k > 0 && a.posted[k-1].wr.Opcode == verbs.WRRDMAWrite && a.h.pairs.IntN(2) == 0 {
		n, kind = 1+a.h.pairs.IntN(wire.LongSend), 0
	}
	at := slotsAt + slot*slotBytes
	data := a.own.buf[at : at+n]
	r := &posted{slot: slot, cell: -1, n: n}
	r.wr = verbs.SendWR{SGList: a.own.sge(at, n), RKey: a.peer.mr.RKey()}
	switch kind {
	case 0, 1:
		fill(data, rng.Int())
		r.wr.Opcode = verbs.WRSend
		a.messages = append(a.messages, message{data: bytes.Clone(data), send: true})
	case 2:
		if a.reading[cell] > 0 {
			return nil
		}
		fill(data, rng.Int())
		r.wr.Opcode, r.wr.ImmData = verbs.WRRDMAWriteWithImm, rng.Uint32()
		a.messages = append(a.messages, message{imm: r.wr.ImmData, data: data})
		a.writeCell(r, cell, data)
	case 3:
		if a.reading[cell] > 0 {
			return nil
		}
		fill(data, rng.Int())
		r.wr.Opcode = verbs.WRRDMAWrite
		a.writeCell(r, cell, data)
	case 4, 5:
		r.wr.Opcode, r.wr.RemoteAddr = verbs.WRRDMARead, a.cellAddr(cell)
		r.cell, r.want = cell, bytes.Clone(a.cells[cell][:n])
		a.reading[cell]++ // a repetition may be answered after a later WRITE
	case 6:
		a.atomic(r, at)
	}
	return r
}

func (a *actor) cellAddr(cell int) uint64 {
	return a.peer.mr.Addr() + uint64(cellsAt+cell*slotBytes)
}

func (a *actor) writeCell(r *posted, cell int, data []byte) {
	r.wr.RemoteAddr = a.cellAddr(cell)
	copy(a.cells[cell], data)
}

// words returns two aligned words of a side's memory for the peer's atomics: one to add to, one to swap.
func words(s *side) (add, swap int) {
	off := int(-s.mr.Addr() & 7)
	return off, off + 64
}

func (a *actor) atomic(r *posted, at int) {
	rng := a.h.rng
	add, swap := words(a.peer)
	r.n, r.wr.SGList = 8, a.own.sge(at, 8)
	if rng.IntN(2) == 0 {
		r.adds = true
		r.wr.Opcode, r.wr.RemoteAddr, r.wr.CompareAdd = verbs.WRAtomicFetchAndAdd, a.peer.mr.Addr()+uint64(add), rng.Uint64()
		r.want = binary.NativeEndian.AppendUint64(nil, a.sum)
		a.sum += r.wr.CompareAdd
		a.sums = append(a.sums, a.sum)
		return
	}
	r.wr.Opcode, r.wr.RemoteAddr = verbs.WRAtomicCmpAndSwp, a.peer.mr.Addr()+uint64(swap)
	r.wr.CompareAdd, r.wr.Swap = a.swapped, rng.Uint64()
	r.want = binary.NativeEndian.AppendUint64(nil, a.swapped)
	if rng.IntN(3) == 0 {
		r.wr.CompareAdd++ // doesn't match
	} else {
		a.swapped = r.wr.Swap
	}
}

// replenish posts receives at the peer, but not always, so that it is sometimes not ready.
func (a *actor) replenish() {
	for len(a.idle) > 0 && a.h.rng.IntN(4) > 0 {
		if s := a.peer.qp.Query().State; s != verbs.RTS {
			return
		}
		buffer := a.idle[0]
		at := receivesAt + buffer*slotBytes
		clear(a.peer.buf[at : at+slotBytes])
		a.peer.recv(uint64(buffer), a.peer.sge(at, slotBytes)...)
		a.idle, a.receives = a.idle[1:], append(a.receives, buffer)
	}
}

// collect handles the completions of both sides.
func (h *history) collect() {
	for _, a := range h.actors {
		a.own.mu.Lock()
		got := a.own.got
		a.own.got = nil
		a.own.mu.Unlock()
		other := h.actors[0]
		if other == a {
			other = h.actors[1]
		}
		for i := range got {
			switch wc := &got[i]; {
			case wc.WRID == ^uint64(0):
				a.failed = true
			case wc.WRID < firstRequest:
				other.received(wc)
			default:
				a.completed(wc)
			}
		}
	}
}

// completed handles the completion of a request.
func (a *actor) completed(wc *verbs.WC) {
	t := a.h.t
	for {
		if len(a.posted) == 0 {
			t.Fatalf("completion of nothing: %+v", wc)
		}
		r := a.posted[0]
		if wc.Status != verbs.WCSuccess {
			// Unsignaled ones before it may have been executed.
			a.failed = true
			if r.wr.WRID != wc.WRID && r.wr.Flags&verbs.SendSignaled != 0 {
				t.Fatalf("%v of request %d comes before that of %d", wc.Status, wc.WRID, r.wr.WRID)
			}
		} else {
			if r.wr.WRID != wc.WRID && r.wr.Flags&verbs.SendSignaled != 0 {
				t.Fatalf("request %d completes before %d", wc.WRID, r.wr.WRID)
			}
			a.succeeded(r)
		}
		a.posted = a.posted[1:]
		a.free = append(a.free, r.slot)
		if r.wr.WRID == wc.WRID {
			if wc.Status != verbs.WCSuccess && !a.h.ended {
				t.Fatalf("request %d: %v; a %s\nb %s", wc.WRID, wc.Status, dump(a.h.p.a.dev), dump(a.h.p.b.dev))
			}
			return
		}
	}
}

// succeeded checks the result of a request.
func (a *actor) succeeded(r *posted) {
	if r.adds {
		a.added++
	}
	if r.want == nil {
		return
	}
	if r.cell >= 0 {
		a.reading[r.cell]--
	}
	at := slotsAt + r.slot*slotBytes
	if got := a.own.buf[at : at+len(r.want)]; !bytes.Equal(got, r.want) {
		k := 0
		for got[k] == r.want[k] {
			k++
		}
		a.h.t.Fatalf("request %d, opcode %d of %d bytes: byte %d is wrong; a %s\nb %s",
			r.wr.WRID, r.wr.Opcode, r.n, k, dump(a.h.p.a.dev), dump(a.h.p.b.dev))
	}
}

// received takes the completion of a receive at the peer, which must be of the oldest message, in the oldest receive.
func (a *actor) received(wc *verbs.WC) {
	t := a.h.t
	if len(a.receives) == 0 || uint64(a.receives[0]) != wc.WRID {
		t.Fatalf("receive %d completes, posted are %v", wc.WRID, a.receives)
	}
	buffer := a.receives[0]
	a.receives, a.idle = a.receives[1:], append(a.idle, buffer)
	if wc.Status != verbs.WCSuccess {
		if !a.h.ended {
			t.Fatalf("receive: %v", wc.Status)
		}
		return
	}
	if len(a.messages) == 0 {
		t.Fatalf("a message that was never sent, or twice: %+v", wc)
	}
	m := a.messages[0]
	a.messages = a.messages[1:]
	switch {
	case int(wc.ByteLen) != len(m.data):
		t.Fatalf("message of %d bytes, want %d", wc.ByteLen, len(m.data))
	case m.send != (wc.Opcode == verbs.WCRecv) || !m.send && wc.ImmData != m.imm:
		t.Fatalf("%+v, want %+v", wc, m)
	case m.send && !bytes.Equal(a.peer.buf[receivesAt+buffer*slotBytes:][:len(m.data)], m.data):
		t.Fatalf("message of %d bytes is altered", len(m.data))
	}
}

// judge compares the final state with the model.
func (h *history) judge() {
	t := h.t
	if !h.ended {
		h.p.checkQuiet()
	}
	for i, a := range h.actors {
		add, swap := words(a.peer)
		sum := binary.NativeEndian.Uint64(a.peer.buf[add:])
		if !slices.Contains(a.sums[a.added:], sum) || !h.ended && sum != a.sum {
			t.Errorf("actor %d: the word holds %d, %d FetchAdds of %d completed", i, sum, a.added, len(a.sums)-1)
		}
		if h.ended {
			continue // what was under way may have taken effect or not
		}
		if got := binary.NativeEndian.Uint64(a.peer.buf[swap:]); got != a.swapped {
			t.Errorf("actor %d: the word holds %d, want %d", i, got, a.swapped)
		}
		for k := range a.cells {
			at := cellsAt + k*slotBytes
			if !bytes.Equal(a.cells[k], a.peer.buf[at:at+slotBytes]) {
				t.Errorf("actor %d: cell %d is wrong", i, k)
			}
		}
		if len(a.messages) > 0 {
			t.Errorf("actor %d: %d messages were lost", i, len(a.messages))
		}
	}
	if t.Failed() {
		t.Fatalf("link %+v; a %s\nb %s", h.link, dump(h.p.a.dev), dump(h.p.b.dev))
	}
}
