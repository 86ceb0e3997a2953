//go:build linux

package udp

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

func TestMain(m *testing.M) {
	if wait := os.Getenv(echoEnv); wait != "" {
		echo(wait)
	}
	goleak.VerifyTestMain(m)
}

var (
	mustAddr = netip.MustParseAddr
	loop4    = netip.MustParseAddr("127.0.0.1")
	loop6    = netip.MustParseAddr("::1")
)

func listen(t testing.TB, addr netip.Addr, cfg Config) *conn {
	t.Helper()
	c, err := Listen(netip.AddrPortFrom(addr, 0), cfg)
	if err != nil {
		if addr.Is6() && (errors.Is(err, ErrNotLocal) || errors.Is(err, ErrUnsupported)) {
			t.Skip("no IPv6 here:", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*conn)
}

// inbox receives in the background and keeps copies of the datagrams.
type inbox struct {
	datagrams chan []byte
	seen      chan Received // whatever was received as one, without Buf
	err       chan error
}

func receiveAll(t testing.TB, c Conn) *inbox {
	b := &inbox{datagrams: make(chan []byte, 1<<16), seen: make(chan Received, 1<<16), err: make(chan error, 1)}
	go func() {
		rx := make([]Received, RecvBatch)
		for {
			n, err := c.Recv(rx)
			if err != nil {
				b.err <- err
				return
			}
			for i := range rx[:n] {
				s := rx[i]
				s.Buf = nil
				b.seen <- s // first, so that it is there before the datagrams are
				for d := range rx[i].Datagrams() {
					b.datagrams <- bytes.Clone(d)
				}
			}
		}
	}()
	t.Cleanup(func() {
		c.Close()
		if err := <-b.err; !errors.Is(err, ErrClosed) {
			t.Errorf("Recv ended with %v, want ErrClosed", err)
		}
	})
	return b
}

// patience is far more than anything takes that ends at all, on a machine that may stand still for a while.
const patience = 5 * time.Minute

func (b *inbox) next(t testing.TB) []byte {
	t.Helper()
	d, ok := soon.Receive(b.datagrams)
	if !ok {
		t.Fatal("datagram didn't arrive")
	}
	return d
}

// trainOf cuts payload into a train of segments of size bytes, gathered from several parts.
func trainOf(dst netip.AddrPort, payload []byte, size int) Train {
	t := Train{Dst: dst}
	for rest := payload; len(rest) > 0; {
		n := min(size, len(rest))
		cut := n / 3
		if !t.Append(rest[:cut], rest[cut:n]) {
			panic("train too long")
		}
		rest = rest[n:]
	}
	return t
}

// TestPriority: packets have the priority that the configuration names, whatever their traffic class would give them.
func TestPriority(t *testing.T) {
	for _, addr := range []netip.Addr{loop4, loop6} {
		for _, want := range []int{1, maxPriority} {
			c := listen(t, addr, Config{Priority: want, TrafficClass: 0x10})
			if got, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_PRIORITY); err != nil || got != want {
				t.Errorf("%v: priority %d, %v; want %d", addr, got, err, want)
			}
		}
	}
}

// TestMappedAddress: an IPv4 address in the form of IPv6 is that IPv4 address.
func TestMappedAddress(t *testing.T) {
	c := listen(t, netip.AddrFrom16(loop4.As16()), Config{})
	if got := c.LocalAddr().Addr(); got != loop4 {
		t.Errorf("listens on %v", got)
	}
	in := receiveAll(t, c)
	send(t, listen(t, loop4, Config{}), trainOf(c.LocalAddr(), pattern(100, 1), 100))
	if !bytes.Equal(in.next(t), pattern(100, 1)) {
		t.Error("another datagram arrived")
	}
}

func TestTrainsArriveWhole(t *testing.T) {
	for _, addr := range []netip.Addr{loop4, loop6} {
		for _, noSeg := range []bool{false, true} {
			for _, noGRO := range []bool{false, true} {
				name := fmt.Sprintf("%v/segmentation=%v/coalescing=%v", addr, !noSeg, !noGRO)
				t.Run(name, func(t *testing.T) {
					a := listen(t, addr, Config{DisableSegmentation: noSeg})
					b := listen(t, addr, Config{DisableCoalescing: noGRO})
					in := receiveAll(t, b)
					if a.Segmentation() == noSeg {
						t.Skip("the kernel has no UDP_SEGMENT")
					}
					for i, tc := range []struct{ bytes, size int }{
						{1, 1}, {36, 36}, {64, 64}, {4096 + 20, 4096 + 20}, {15 * 4140, 4140},
						{14*4140 + 16, 4140}, {64 * 280, 280}, {MaxTrainBytes, 4140}, {MaxTrainBytes, MaxTrainBytes}, {3000, 1000},
					} {
						payload := pattern(tc.bytes, uint64(i))
						send(t, a, trainOf(b.LocalAddr(), payload, tc.size))
						for rest := payload; len(rest) > 0; {
							n := min(tc.size, len(rest))
							if got := in.next(t); !bytes.Equal(got, rest[:n]) {
								t.Fatalf("case %d: got %d bytes, want the %d sent", i, len(got), n)
							}
							rest = rest[n:]
						}
					}
				})
			}
		}
	}
}

// TestCalls: one call sends as many trains as it has room for, and pieces of them.
func TestCalls(t *testing.T) {
	for _, c := range []struct{ trains, parts, calls int }{{1, 1, 1}, {sendBatch, 3, 1}, {sendBatch + 1, 3, 2}, {2, MaxTrainParts, 1}, {5, MaxTrainParts, 3}} {
		a, b := listen(t, loop4, Config{}), listen(t, loop4, Config{})
		in := receiveAll(t, b)
		payload := pattern(2*c.parts, 1)
		train := Train{Dst: b.LocalAddr()}
		train.Append(slices.Collect(slices.Chunk(payload, 2))...)
		if n, err := a.Send(slices.Repeat([]Train{train}, c.trains)); n != c.trains || err != nil {
			t.Fatal(n, err)
		}
		for range c.trains {
			if !bytes.Equal(in.next(t), payload) {
				t.Fatal("another datagram arrived")
			}
		}
		if n := a.Counters().TxSyscalls.Load(); n != uint64(c.calls) {
			t.Errorf("%d trains of %d pieces are sent by %d calls, want %d", c.trains, c.parts, n, c.calls)
		}
	}
}

// send sends a train, datagram by datagram where the socket can't segment.
func send(t testing.TB, c *conn, train Train) {
	t.Helper()
	trains := []Train{train}
	if !c.Segmentation() {
		flat := bytes.Join(train.Parts, nil)
		trains = trains[:0]
		for len(flat) > 0 {
			n := min(train.SegmentSize, len(flat))
			one := Train{Dst: train.Dst, TrafficClass: train.TrafficClass}
			one.Append(flat[:n])
			trains = append(trains, one)
			flat = flat[n:]
		}
	}
	if n, err := c.Send(trains); n != len(trains) || err != nil {
		t.Fatalf("Send took %d of %d trains: %v", n, len(trains), err)
	}
}

func TestReceivedTellsSourceAndTrafficClass(t *testing.T) {
	for _, addr := range []netip.Addr{loop4, loop6} {
		a := listen(t, addr, Config{TrafficClass: 2})
		b := listen(t, addr, Config{})
		in := receiveAll(t, b)
		for _, class := range []uint8{0, 2, 3, 106, 0xb8 | 1} {
			train := trainOf(b.LocalAddr(), pattern(100, 1), 50)
			train.TrafficClass = class
			send(t, a, train)
			for range 2 {
				in.next(t)
			}
			got := <-in.seen
			if got.TrafficClass != class || got.ECN() != class&3 || got.Src != a.LocalAddr() || got.Dst != addr || got.SegmentSize != 50 {
				t.Errorf("sent class %#x from %v, received %+v", class, a.LocalAddr(), got)
			}
		}
	}
}

func TestCloseWakesRecv(t *testing.T) {
	for range 200 {
		c := listen(t, loop4, Config{})
		started := make(chan struct{})
		got := make(chan error)
		go func() {
			close(started)
			_, err := c.Recv(make([]Received, 1))
			got <- err
		}()
		<-started
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Fatalf("Recv returned %v", err)
		}
		if _, err := c.Send(nil); !errors.Is(err, ErrClosed) {
			t.Fatalf("Send after Close returned %v", err)
		}
		if _, err := c.TryRecv(make([]Received, 1)); !errors.Is(err, ErrClosed) {
			t.Fatalf("TryRecv after Close returned %v", err)
		}
	}
}

func TestCloseFreesThePort(t *testing.T) {
	c := listen(t, loop4, Config{})
	go c.Recv(make([]Received, 1))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Listen(c.LocalAddr(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestManySenders(t *testing.T) {
	b := listen(t, loop4, Config{})
	a := listen(t, loop4, Config{})
	in := receiveAll(t, b)
	const workers, each = 8, 50
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				payload := bytes.Repeat([]byte{byte(w), byte(i)}, 500)
				send(t, a, trainOf(b.LocalAddr(), payload, 300))
			}
		})
	}
	got := map[[2]byte]int{}
	for range workers * each * 4 {
		d := in.next(t)
		if !bytes.Equal(d, bytes.Repeat(d[:2], len(d)/2)) {
			t.Fatal("datagrams of two senders mixed")
		}
		got[[2]byte(d)] += len(d)
	}
	wg.Wait()
	for k, n := range got {
		if n != 1000 {
			t.Errorf("worker %d message %d: %d bytes of 1000", k[0], k[1], n)
		}
	}
}
