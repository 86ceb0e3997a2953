package fault

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Conn is a socket of an RNIC with faults.
type Conn struct {
	udp.Conn
	cfg      Config
	link     simnet.Link
	opened   time.Time
	counters Counters

	in, out *line
	ended   sync.WaitGroup

	// Owned by the receiving goroutine.
	taken [udp.RecvBatch]held

	sending sync.Mutex // guards what follows
	rng     *rand.Rand
	direct  []udp.Train // sent at once
}

// Counters count the packets that were affected by a fault, in both directions.
type Counters struct {
	Lost, Cut, Duplicated, Corrupted, Reordered atomic.Uint64
	Overflowed                                  atomic.Uint64 // lost because there was no room to hold them back
}

var _ udp.Conn = (*Conn)(nil)

// Wrap injects the faults of cfg, which must be valid, into the socket of an RNIC. c belongs to the result from then
// on. Wrap is for softrnic: programs set softrnic.Config.Fault.
func Wrap(c udp.Conn, cfg Config) *Conn {
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64() | 1
	}
	f := &Conn{
		Conn: c, cfg: cfg, opened: time.Now(), in: newLine(), out: newLine(),
		link: simnet.Link{
			Latency: cfg.Delay - cfg.Jitter, Jitter: 2 * cfg.Jitter,
			Loss: cfg.Loss, Duplicate: cfg.Duplicate, Corrupt: cfg.Corrupt,
			Reorder: cfg.Reorder, ReorderDelay: cfg.ReorderDelay,
		},
		rng: rand.New(rand.NewPCG(cfg.Seed, uint64(Out))),
	}
	f.ended.Go(f.receive)
	f.ended.Go(f.release)
	return f
}

// Config returns the Config passed to Wrap, with the seed that was drawn.
func (f *Conn) Config() Config { return f.cfg }

// Faults counts the packets that were affected.
func (f *Conn) Faults() *Counters { return &f.counters }

// Segmentation returns false: see the package documentation.
func (f *Conn) Segmentation() bool { return false }

// Segments is Segmentation.
func (f *Conn) Segments(netip.AddrPort) bool { return false }

// isCut reports whether nothing passes now.
func (f *Conn) isCut(way Way) bool {
	if len(f.cfg.Cuts) == 0 {
		return false
	}
	since := time.Since(f.opened)
	for _, c := range f.cfg.Cuts {
		if (c.Way == Both || c.Way == way) && since >= c.After && (c.For == 0 || since-c.After < c.For) {
			return true
		}
	}
	return false
}

// fate decides how many copies of a datagram arrive. It changes data if the datagram is to be corrupted.
func (f *Conn) fate(way Way, rng *rand.Rand, data []byte) (copies int) {
	k := &f.counters
	if f.isCut(way) {
		k.Cut.Add(1)
		return 0
	}
	fate := f.link.Draw(rng, data)
	switch {
	case fate.Lost:
		k.Lost.Add(1)
		return 0
	case fate.Corrupted:
		k.Corrupted.Add(1)
	}
	if fate.Duplicated {
		k.Duplicated.Add(1)
		return 2
	}
	return 1
}

// transit returns how long one copy is held back.
func (f *Conn) transit(rng *rand.Rand) time.Duration {
	took, late := f.link.Transit(rng)
	if late {
		f.counters.Reordered.Add(1)
	}
	return took
}

func (f *Conn) hold(l *line, h held) {
	if !l.put(h) {
		f.counters.Overflowed.Add(1)
	}
}

// Send forwards packets without delay, and keeps copies of the rest.
func (f *Conn) Send(trains []udp.Train) (int, error) {
	f.sending.Lock()
	defer f.sending.Unlock()
	f.direct = f.direct[:0]
	now := time.Now()
	for i := range trains {
		t := &trains[i]
		if t.Datagrams() > 1 {
			return i, &udp.OpError{Op: "send", Addr: t.Dst, Kind: udp.ErrSegmentation}
		}
		f.send(t, now)
	}
	n, err := f.Conn.Send(f.direct)
	clear(f.direct)
	if err != nil {
		return min(n, len(trains)-1), err // which one it was matters little: sending won't work again
	}
	return len(trains), nil
}

func (f *Conn) send(t *udp.Train, now time.Time) {
	var data []byte
	out := *t
	if f.cfg.Corrupt > 0 {
		var ok bool
		if data, ok = gather(t); !ok {
			return
		}
		out.Parts = [][]byte{data}
	}
	for range f.fate(Out, f.rng, data) {
		delay := f.transit(f.rng)
		if delay <= 0 {
			f.direct = append(f.direct, out)
			continue
		}
		if data, ok := gather(&out); ok {
			copied := out
			copied.Parts = [][]byte{data}
			f.hold(f.out, held{due: now.Add(delay), data: data, sent: copied})
		}
	}
}

// gather copies a packet; ok is false if some of its memory is gone. Then the system couldn't send it either: it is
// lost, and its sender finds out when it sends it again.
func gather(t *udp.Train) (b []byte, ok bool) {
	b, at := make([]byte, t.Bytes), 0
	for _, p := range t.Parts {
		if _, ok = mem.Copy(b[at:], p); !ok {
			return nil, false
		}
		at += len(p)
	}
	return b, true
}

// release sends what was held back.
func (f *Conn) release() {
	var due [udp.RecvBatch]held
	var trains [udp.RecvBatch]udp.Train
	for {
		n, err := f.out.take(time.Now(), due[:])
		if err != nil {
			return
		}
		if n == 0 {
			f.out.wait()
			continue
		}
		for i := range n {
			trains[i] = due[i].sent
		}
		// A datagram that can no longer be sent is as good as lost.
		_, _ = f.Conn.Send(trains[:n])
	}
}

// receive moves datagrams from the socket to Recv.
func (f *Conn) receive() {
	rng := rand.New(rand.NewPCG(f.cfg.Seed, uint64(In)))
	var rx [udp.RecvBatch]udp.Received
	for {
		n, err := f.Conn.Recv(rx[:])
		if err != nil {
			f.in.end(err)
			return
		}
		now := time.Now()
		for i := range rx[:n] {
			f.arrived(&rx[i], rng, now)
		}
	}
}

// arrived splits what arrived in one piece.
func (f *Conn) arrived(r *udp.Received, rng *rand.Rand, now time.Time) {
	index := r.Index
	for d := range r.Datagrams() {
		data := append([]byte(nil), d...)
		one := *r
		one.Buf, one.SegmentSize, one.Index = nil, len(data), index
		for range f.fate(In, rng, data) {
			f.hold(f.in, held{due: now.Add(f.transit(rng)), data: data, received: one})
		}
		index++
	}
}

// Recv waits for datagrams that are due.
func (f *Conn) Recv(rx []udp.Received) (int, error) {
	for {
		n, err := f.TryRecv(rx)
		if n > 0 || err != nil || len(rx) == 0 {
			return n, err
		}
		f.in.wait()
	}
}

// TryRecv returns datagrams that are due.
func (f *Conn) TryRecv(rx []udp.Received) (int, error) {
	rx = rx[:min(len(rx), len(f.taken))]
	n, err := f.in.take(time.Now(), f.taken[:len(rx)])
	for i := range rx[:n] {
		rx[i] = f.taken[i].received
		rx[i].Buf = f.taken[i].data
		f.taken[i] = held{}
	}
	return n, err
}

// drainTicks bounds how long Close waits for what is held back, in milliseconds during which the program runs: after a
// standstill of the machine, it still sends what became due meanwhile.
const drainTicks = 1000

// Close sends what is held back, as a network would deliver it, and closes the socket.
func (f *Conn) Close() error {
	for range drainTicks {
		if f.out.empty() {
			break
		}
		<-time.After(time.Millisecond)
	}
	err := f.Conn.Close()
	f.out.end(udp.ErrClosed)
	f.ended.Wait()
	return err
}
