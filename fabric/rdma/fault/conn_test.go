package fault

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a sender and a receiver; faults are at the sender or at the receiver.
type pair struct {
	sender, receiver udp.Conn
	faulty           *Conn
	done             sync.WaitGroup

	mu      sync.Mutex
	arrived []uint32 // numbers, in the order of arrival
	altered int
}

const datagramSize = 64

func newPair(t *testing.T, way Way, cfg Config) *pair {
	t.Helper()
	n := simnet.New(1)
	listen := func(a string) udp.Conn {
		e, err := n.Listen(netip.MustParseAddrPort(a), simnet.Config{Coalesce: true, RecvBuffer: 1 << 24})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	p := &pair{sender: listen("10.0.0.1:4791"), receiver: listen("10.0.0.2:4791")}
	if way == Out {
		p.faulty = Wrap(p.sender, cfg)
		p.sender = p.faulty
	} else {
		p.faulty = Wrap(p.receiver, cfg)
		p.receiver = p.faulty
	}
	p.done.Add(1)
	go p.receive()
	return p
}

func (p *pair) receive() {
	defer p.done.Done()
	var rx [udp.RecvBatch]udp.Received
	for {
		n, err := p.receiver.Recv(rx[:])
		if err != nil {
			return
		}
		p.mu.Lock()
		for i := range rx[:n] {
			for d := range rx[i].Datagrams() {
				number := binary.BigEndian.Uint32(d)
				for _, b := range d[4:] {
					if b != byte(number) {
						p.altered++
						break
					}
				}
				p.arrived = append(p.arrived, number)
			}
		}
		p.mu.Unlock()
	}
}

// settled returns how many datagrams have a known fate: all of their copies have arrived, or won't.
func (p *pair) settled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.faulty.Faults()
	return len(p.arrived) + int(k.Lost.Load()+k.Cut.Load()+k.Overflowed.Load()) - int(k.Duplicated.Load())
}

// send sends datagrams that begin with their number, and ends both sides. Closing the sender delivers what it holds
// back; the receiver closes when the fate of each is known.
func (p *pair) send(t *testing.T, count int) {
	t.Helper()
	dst := netip.MustParseAddrPort("10.0.0.2:4791")
	var trains []udp.Train
	for i := range count {
		b := binary.BigEndian.AppendUint32(nil, uint32(i))
		for len(b) < datagramSize {
			b = append(b, byte(i))
		}
		train := udp.Train{Dst: dst}
		train.Append(b[:7], b[7:])
		trains = append(trains, train)
	}
	if n, err := p.sender.Send(trains); n != count || err != nil {
		t.Fatalf("Send: %d of %d: %v", n, count, err)
	}
	if err := p.sender.Close(); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(time.Minute); p.settled() < count && time.Now().Before(deadline); {
		<-time.After(time.Millisecond)
	}
	if err := p.receiver.Close(); err != nil {
		t.Error(err)
	}
	p.done.Wait()
}

// Each fault affects about as many datagrams as configured, on whichever side, and no others.
func TestFaults(t *testing.T) {
	const count = 4000
	near := func(n, want int) bool { return n > want*7/10 && n < want*13/10 }
	for _, c := range []struct {
		name  string
		cfg   Config
		check func(p *pair, k *Counters) bool
	}{
		{"none", Config{}, func(p *pair, k *Counters) bool { return len(p.arrived) == count && p.altered == 0 && p.inOrder() }},
		{"loss", Config{Loss: 0.1}, func(p *pair, k *Counters) bool {
			return near(int(k.Lost.Load()), count/10) && len(p.arrived) == count-int(k.Lost.Load()) && p.inOrder()
		}},
		{"dup", Config{Duplicate: 0.1}, func(p *pair, k *Counters) bool {
			return near(int(k.Duplicated.Load()), count/10) && len(p.arrived) == count+int(k.Duplicated.Load())
		}},
		{"corrupt", Config{Corrupt: 0.1}, func(p *pair, k *Counters) bool {
			return near(int(k.Corrupted.Load()), count/10) && len(p.arrived) == count && near(p.altered, count/10)
		}},
		{"reorder", Config{Reorder: 0.1, ReorderDelay: 20 * time.Millisecond}, func(p *pair, k *Counters) bool {
			return near(int(k.Reordered.Load()), count/10) && len(p.arrived) == count && !p.inOrder()
		}},
		{"delay", Config{Delay: 2 * time.Millisecond, Jitter: time.Millisecond}, func(p *pair, k *Counters) bool {
			return len(p.arrived) == count && p.altered == 0
		}},
		{"cut", Config{Cuts: []Cut{{}}}, func(p *pair, k *Counters) bool { return len(p.arrived) == 0 && k.Cut.Load() == count }},
		{"cut of the other way", Config{}, nil},
	} {
		for _, way := range []Way{In, Out} {
			t.Run(c.name+" "+wayPrefix[way], func(t *testing.T) {
				if c.check == nil {
					c.cfg.Cuts = []Cut{{Way: In + Out - way}}
					c.check = func(p *pair, _ *Counters) bool { return len(p.arrived) == count }
					defer func() { c.check = nil }()
				}
				c.cfg.Seed = 5
				p := newPair(t, way, c.cfg)
				p.send(t, count)
				k := p.faulty.Faults()
				if !c.check(p, k) {
					t.Errorf("%d arrived of %d, %d altered, in order: %t; lost %d, cut %d, duplicated %d, corrupted %d, reordered %d, overflowed %d",
						len(p.arrived), count, p.altered, p.inOrder(), k.Lost.Load(), k.Cut.Load(), k.Duplicated.Load(),
						k.Corrupted.Load(), k.Reordered.Load(), k.Overflowed.Load())
				}
			})
		}
	}
}

func (p *pair) inOrder() bool {
	for i := 1; i < len(p.arrived); i++ {
		if p.arrived[i] < p.arrived[i-1] {
			return false
		}
	}
	return true
}

// The same seed gives the same faults to the same datagrams.
func TestSeedRepeats(t *testing.T) {
	var first []uint32
	for range 2 {
		p := newPair(t, Out, Config{Loss: 0.3, Seed: 99})
		p.send(t, 500)
		if first == nil {
			first = p.arrived
			continue
		}
		if len(first) != len(p.arrived) {
			t.Fatalf("%d arrived, then %d", len(first), len(p.arrived))
		}
		for i := range first {
			if first[i] != p.arrived[i] {
				t.Fatalf("datagram %d arrived as the %dth, then %d", first[i], i, p.arrived[i])
			}
		}
	}
}

// slowConn takes its time to send, and records whether it was closed meanwhile.
type slowConn struct {
	udp.Conn
	closed   atomic.Bool
	sending  chan struct{}
	tooEarly atomic.Bool
}

func (c *slowConn) Send(trains []udp.Train) (int, error) {
	if len(trains) > 0 {
		close(c.sending)
		<-time.After(20 * time.Millisecond)
		c.tooEarly.Store(c.closed.Load())
	}
	return c.Conn.Send(trains)
}

func (c *slowConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// Close waits for what is being sent, not only for what is held back.
func TestCloseWaits(t *testing.T) {
	e, err := simnet.New(1).Listen(netip.MustParseAddrPort("10.0.0.1:4791"), simnet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	inner := &slowConn{Conn: e, sending: make(chan struct{})}
	f := Wrap(inner, Config{Delay: time.Millisecond})
	train := udp.Train{Dst: netip.MustParseAddrPort("10.0.0.2:4791")}
	train.Append([]byte("hello"))
	if _, err := f.Send([]udp.Train{train}); err != nil {
		t.Fatal(err)
	}
	<-inner.sending
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if inner.tooEarly.Load() {
		t.Error("closed while a datagram was being sent")
	}
}

// A delay is never shorter than configured, and Close of a Conn that nobody receives from returns.
func TestDelayHolds(t *testing.T) {
	const delay = 5 * time.Millisecond
	n := simnet.New(1)
	a, err := n.Listen(netip.MustParseAddrPort("10.0.0.1:4791"), simnet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := n.Listen(netip.MustParseAddrPort("10.0.0.2:4791"), simnet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	slow := Wrap(b, Config{Delay: delay})
	train := udp.Train{Dst: b.LocalAddr()}
	train.Append([]byte("hello"))
	began := time.Now()
	if _, err := a.Send([]udp.Train{train}); err != nil {
		t.Fatal(err)
	}
	var rx [1]udp.Received
	got, err := slow.TryRecv(rx[:])
	if got == 0 && err == nil { // as expected, unless this test was delayed
		got, err = slow.Recv(rx[:])
	}
	if got != 1 || err != nil || string(rx[0].Buf) != "hello" {
		t.Errorf("received %d, %v, %q", got, err, rx[0].Buf)
	}
	if took := time.Since(began); took < delay {
		t.Errorf("it took %v, want at least %v", took, delay)
	}
	if err := slow.Close(); err != nil {
		t.Error(err)
	}
	if _, err := slow.Recv(rx[:]); !errors.Is(err, udp.ErrClosed) {
		t.Errorf("Recv after Close: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// A train of several datagrams is refused as by a kernel without segmentation, so that the RNIC splits it.
func TestTrainsAreRefused(t *testing.T) {
	p := newPair(t, Out, Config{})
	train := udp.Train{Dst: netip.MustParseAddrPort("10.0.0.2:4791")}
	train.Append(make([]byte, 100))
	train.Append(make([]byte, 100))
	if n, err := p.sender.Send([]udp.Train{train}); n != 0 || !errors.Is(err, udp.ErrSegmentation) {
		t.Errorf("Send: %d, %v", n, err)
	}
	p.send(t, 1)
}
