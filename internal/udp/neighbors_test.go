//go:build linux

package udp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/neighbor"
	"github.com/nvme-anywhere/nvmeof/internal/ring"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// link has two conns send to each other until they share memory.
func link(t testing.TB, a, b *conn) {
	t.Helper()
	if !soon.Until(func() bool {
		there, back := a.near.table.Link(b.local), b.near.table.Link(a.local)
		return there != nil && back != nil
	}) {
		t.Fatal("no link")
	}
}

// near are two conns that share memory.
func near(t testing.TB, addr netip.Addr, cfg Config) (a, b *conn) {
	t.Helper()
	cfg.ShareMemory = true
	a, b = listen(t, addr, cfg), listen(t, addr, cfg)
	link(t, a, b)
	return a, b
}

// TestNeighbors: trains arrive as they were sent, in their order, past the kernel.
func TestNeighbors(t *testing.T) {
	for _, addr := range []netip.Addr{loop4, loop6} {
		for _, plain := range []bool{false, true} {
			a, b := near(t, addr, Config{DisableSegmentation: plain, DisableCoalescing: plain, TrafficClass: 2})
			in := receiveAll(t, b)
			sent, datagrams := uint64(0), uint64(0) // in bytes, and how many
			for i, tc := range []struct{ bytes, size int }{
				{36, 36}, {64, 64}, {4096 + 20, 4096 + 20}, {15 * 4140, 4140}, {14*4140 + 16, 4140}, {64 * 280, 280},
				{MaxTrainBytes, 4140}, {MaxTrainBytes, MaxTrainBytes}, {3000, 1000},
			} {
				payload := pattern(tc.bytes, uint64(i))
				train := trainOf(b.LocalAddr(), payload, tc.size)
				train.TrafficClass = uint8(i)
				send(t, a, train)
				sent += uint64(len(payload))
				for rest := payload; len(rest) > 0; {
					n := min(tc.size, len(rest))
					if got := in.next(t); !bytes.Equal(got, rest[:n]) {
						t.Fatalf("case %d: got %d bytes, want the %d sent", i, len(got), n)
					}
					rest = rest[n:]
					datagrams++
				}
				pieces := 1
				if plain {
					pieces = (tc.bytes + tc.size - 1) / tc.size
				}
				if n := len(in.seen); n != pieces {
					t.Fatalf("case %d: came in %d pieces, want %d", i, n, pieces)
				}
				for range pieces {
					if got := <-in.seen; got.TrafficClass != uint8(i) || got.Src != a.LocalAddr() || got.Dst != addr || got.Index != 0 {
						t.Errorf("case %d: received %+v", i, got)
					}
				}
			}
			if n := a.counters.TxShared.Load(); n != sent || a.counters.TxBytes.Load() < sent {
				t.Errorf("%d bytes went through shared memory, want %d", n, sent)
			}
			if n := b.counters.RxShared.Load(); n != sent || b.counters.RxBytes.Load() < sent {
				t.Errorf("%d bytes came through shared memory, want %d", n, sent)
			}
			if n := b.counters.RxDatagrams.Load(); n != datagrams {
				t.Errorf("%d datagrams came, want %d", n, datagrams)
			}
		}
	}
}

// TestNeighborsInPlace: trains that were written to shared memory arrive in order with those that were sent, and wake a
// sleeping receiver; incomplete ones don't, and those without a receiver are lost.
func TestNeighborsInPlace(t *testing.T) {
	a, b := near(t, loop4, Config{})
	if stranger := listen(t, loop4, Config{}); a.Shares(stranger.local) || stranger.Shares(a.local) || !a.Shares(b.local) {
		t.Fatal("memory is shared with the wrong ones")
	}
	in := receiveAll(t, b)
	for i := range 100 {
		payload := pattern(3000, uint64(i))
		train := trainOf(b.LocalAddr(), payload, 1000)
		if i%3 == 0 {
			send(t, a, train)
		} else {
			to := a.Begin(&train)
			if copy(to, payload) < len(payload) {
				t.Fatalf("room for %d bytes", len(to))
			}
			a.End(&train, i%3 == 1)
		}
		if i%3 == 2 {
			continue
		}
		for ; len(payload) > 0; payload = payload[1000:] {
			if got := in.next(t); !bytes.Equal(got, payload[:1000]) {
				t.Fatalf("train %d: another datagram arrived", i)
			}
		}
	}
	if n := a.counters.TxShared.Load(); n != 67*3000 || a.counters.TxDatagrams.Load() < 67*3 {
		t.Errorf("%d bytes went through shared memory, want %d", n, 67*3000)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if !soon.Until(func() bool { return !a.Shares(b.local) }) {
		t.Fatal("memory is shared with one that is gone")
	}
	train := trainOf(b.LocalAddr(), pattern(1, 1), 1)
	if to := a.Begin(&train); to != nil || a.counters.TxDrops.Load() != 1 {
		t.Errorf("%d bytes of room at one that is gone, %d dropped", len(to), a.counters.TxDrops.Load())
	}
}

// TestNeighborsMissingPages: a train whose memory has gone is refused, as the kernel does, and the next one arrives.
func TestNeighborsMissingPages(t *testing.T) {
	a, b := near(t, loop4, Config{})
	in := receiveAll(t, b)
	gone, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(gone)
	payload := pattern(100, 1)
	train := Train{Dst: b.LocalAddr(), Parts: [][]byte{payload, gone}, Bytes: 100 + len(gone), SegmentSize: 100 + len(gone)}
	if n, err := a.Send([]Train{trainOf(b.LocalAddr(), payload, 100), train}); n != 1 || !errors.Is(err, unix.EFAULT) {
		t.Errorf("%d sent: %v; want one, and EFAULT", n, err)
	}
	send(t, a, trainOf(b.LocalAddr(), payload, 100))
	for range 2 {
		if got := in.next(t); !bytes.Equal(got, payload) {
			t.Fatal("another datagram arrived")
		}
	}
}

// TestNeighborsRefusedWake: a sleeping receiver is woken for what was sent before a train that is refused.
func TestNeighborsRefusedWake(t *testing.T) {
	gone, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(gone)
	for name, refused := range map[string]Train{
		"missing pages": {Parts: [][]byte{gone}, Bytes: len(gone), SegmentSize: len(gone)},
		"wrong length":  {Parts: [][]byte{gone}, Bytes: 1, SegmentSize: 1},
	} {
		a, b := near(t, loop4, Config{}) // which sleeps until it receives for the first time
		refused.Dst = b.LocalAddr()
		if n, err := a.Send([]Train{trainOf(b.LocalAddr(), pattern(100, 1), 100), refused}); n != 1 || err == nil {
			t.Errorf("%s: %d sent, error %v; want one, and an error", name, n, err)
		}
		if n := a.counters.TxSyscalls.Load(); n != 1 {
			t.Errorf("%s: %d bells, want 1", name, n)
		}
		if n, err := a.Send([]Train{refused}); n != 0 || err == nil || a.counters.TxSyscalls.Load() != 1 {
			t.Errorf("%s: %d sent with %d bells, error %v; want none, and an error", name, n, a.counters.TxSyscalls.Load()-1, err)
		}
	}
}

// TestNeighborsNeedBoth: where one of two doesn't share memory, the kernel carries their datagrams.
func TestNeighborsNeedBoth(t *testing.T) {
	for _, shares := range [][2]bool{{true, false}, {false, true}} {
		a, b := listen(t, loop4, Config{ShareMemory: shares[0]}), listen(t, loop4, Config{ShareMemory: shares[1]})
		in := receiveAll(t, b)
		for i := range 10 {
			payload := pattern(100, uint64(i))
			send(t, a, trainOf(b.LocalAddr(), payload, 100))
			if got := in.next(t); !bytes.Equal(got, payload) {
				t.Fatal("another datagram arrived")
			}
		}
		if a.counters.TxShared.Load() > 0 {
			t.Error("memory is shared with one that doesn't want it")
		}
	}
}

// TestNeighborWakes: a sleeping receiver is woken for each datagram, whether or not it polls first.
func TestNeighborWakes(t *testing.T) {
	for _, poll := range []time.Duration{NoBusyPoll, 0} {
		a, b := near(t, loop4, Config{BusyPoll: poll})
		in := receiveAll(t, b)
		pass := func(i int) {
			payload := pattern(100, uint64(i))
			send(t, a, trainOf(b.LocalAddr(), payload, 50))
			for _, want := range [][]byte{payload[:50], payload[50:]} {
				if got := in.next(t); !bytes.Equal(got, want) {
					t.Fatalf("datagram %d: another one arrived", i)
				}
			}
		}
		for i := range 200 {
			pass(i)
			if rung := a.counters.TxSyscalls.Load(); i%10 == 0 && !soon.Until(func() bool {
				pass(i)
				return a.counters.TxSyscalls.Load() > rung
			}) {
				t.Fatal("never asleep")
			}
		}
	}
}

// TestNeighborBells: while a receiver sleeps there are few bells, however much is sent.
func TestNeighborBells(t *testing.T) {
	a, b := near(t, loop4, Config{})
	before := time.Now()
	const sends = 5000
	for range sends {
		send(t, a, trainOf(b.LocalAddr(), pattern(100, 1), 100))
	}
	if n, most := a.counters.TxSyscalls.Load(), 2+time.Since(before).Milliseconds(); n == 0 || n > uint64(most) {
		t.Errorf("%d bells for %d sends, want 1 to %d", n, sends, most)
	}
}

// TestNeighborFull: what finds no room is lost and counted, what found some arrives, and then there is room again.
func TestNeighborFull(t *testing.T) {
	a, b := near(t, loop4, Config{})
	payload := pattern(60_000, 1)
	sent := 0
	for ; a.counters.TxDrops.Load() == 0; sent++ {
		binary.BigEndian.PutUint64(payload, uint64(sent))
		send(t, a, trainOf(b.LocalAddr(), payload, len(payload)))
		if sent > 10_000 {
			t.Fatal("there is always room")
		}
	}
	in := receiveAll(t, b)
	for i := range sent - 1 {
		if got := in.next(t); len(got) != len(payload) || binary.BigEndian.Uint64(got) != uint64(i) {
			t.Fatalf("datagram %d of %d isn't the one sent", i, sent)
		}
	}
	if !soon.Until(func() bool {
		before := a.counters.TxDrops.Load()
		send(t, a, trainOf(b.LocalAddr(), pattern(100, 2), 100))
		return a.counters.TxDrops.Load() == before
	}) {
		t.Error("no room though all was received")
	}
	if got := in.next(t); !bytes.Equal(got, pattern(100, 2)) {
		t.Error("another datagram arrived")
	}
}

// TestNeighborFullWakes: a receiver that sleeps though its memory is full, because the bell was lost, is woken by a
// sender that finds no room.
func TestNeighborFullWakes(t *testing.T) {
	a, b := near(t, loop4, Config{})
	payload := pattern(60_000, 1)
	train := trainOf(b.LocalAddr(), payload, len(payload))
	for to := a.Begin(&train); to != nil; to = a.Begin(&train) {
		copy(to, payload)
		a.End(&train, true)
	}
	for name, find := range map[string]func(){
		"Begin": func() { a.Begin(&train) },
		"Send":  func() { send(t, a, train) },
	} {
		time.Sleep(10 * time.Millisecond) // for a while one bell is enough
		drops, bells := a.counters.TxDrops.Load(), a.counters.TxSyscalls.Load()
		find()
		if n := a.counters.TxDrops.Load() - drops; n != 1 {
			t.Errorf("%s: %d datagrams found no room, want 1", name, n)
		}
		if n := a.counters.TxSyscalls.Load() - bells; n != 1 {
			t.Errorf("%s: %d bells, want 1", name, n)
		}
	}
}

// TestNeighborsAndOthers: a neighbor that always has something doesn't keep others out, nor they it.
func TestNeighborsAndOthers(t *testing.T) {
	a, b := near(t, loop4, Config{})
	far := listen(t, loop4, Config{})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		flood := []Train{trainOf(b.LocalAddr(), pattern(100, 1), 100)}
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = a.Send(flood)
			}
		}
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		rx := make([]Received, RecvBatch)
		for others := 0; others < 100; {
			n, err := b.Recv(rx)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range rx[:n] {
				if rx[i].Src == far.LocalAddr() {
					others++
				}
			}
		}
	}()
	soon.Until(func() bool {
		select {
		case <-done:
			return true
		default:
			send(t, far, trainOf(b.LocalAddr(), pattern(200, 2), 200))
			return false
		}
	})
	select {
	case <-done:
	default:
		t.Error("others don't get through")
		_ = b.Close()
		<-done
	}
	close(stop)
	<-stopped
	// One Send for neighbors and others has both, and each gets what is for it on the shortest way.
	in := receiveAll(t, b)
	inFar := receiveAll(t, far)
	if !soon.Until(func() bool { return b.counters.RxShared.Load() == a.counters.TxShared.Load() }) {
		t.Fatal("not all of the flood is received")
	}
	near, away := trainOf(b.LocalAddr(), pattern(300, 3), 300), trainOf(far.LocalAddr(), pattern(400, 4), 400)
	shared := a.counters.TxShared.Load()
	if n, err := a.Send([]Train{near, away, away, near, away}); n != 5 || err != nil {
		t.Fatalf("Send took %d of 5 trains: %v", n, err)
	}
	if n := a.counters.TxShared.Load() - shared; n != 2*300 {
		t.Errorf("%d bytes went through shared memory, want %d", n, 2*300)
	}
	for range 3 {
		if got := inFar.next(t); !bytes.Equal(got, pattern(400, 4)) {
			t.Error("another datagram arrived by the socket")
		}
	}
	for seen := 0; seen < 2; {
		if bytes.Equal(in.next(t), pattern(300, 3)) {
			seen++
		}
	}
}

// TestSocketsTurn: what is at the socket waits for no more than a bounded number of receives from neighbors.
func TestSocketsTurn(t *testing.T) {
	a, b := near(t, loop4, Config{})
	for range (neighborTurns + 4) * RecvBatch {
		send(t, a, trainOf(b.LocalAddr(), pattern(100, 1), 100))
	}
	send(t, listen(t, loop4, Config{}), trainOf(b.LocalAddr(), pattern(200, 2), 200))
	rx := make([]Received, RecvBatch)
	for calls := 1; ; calls++ {
		n, err := b.TryRecv(rx)
		if n == 0 || err != nil || calls > neighborTurns+1 {
			t.Fatalf("receive %d brings %d datagrams, %v, and the socket's wasn't among them", calls, n, err)
		}
		if len(rx[0].Buf) == 200 {
			return
		}
	}
}

// TestTryRecvNothing: TryRecv returns 0 if nothing is there, from neighbors or others, and only then: callers that
// drain a conn rely on it.
func TestTryRecvNothing(t *testing.T) {
	a, b := near(t, loop4, Config{})
	far := listen(t, loop4, Config{})
	drain := func(size int) (n int) {
		t.Helper()
		rx := make([]Received, RecvBatch)
		for {
			k, err := b.TryRecv(rx)
			if err != nil {
				t.Fatal(err)
			}
			if k == 0 {
				return n
			}
			for i := range rx[:k] {
				if len(rx[i].Buf) == size {
					n++
				}
			}
		}
	}
	drain(0)
	const sent = (neighborTurns + 2) * RecvBatch
	for range sent {
		send(t, a, trainOf(b.LocalAddr(), pattern(100, 1), 100))
	}
	if n := drain(100); n != sent {
		t.Errorf("%d of %d datagrams of a neighbor were there", n, sent)
	}
	for range 2 * RecvBatch {
		send(t, far, trainOf(b.LocalAddr(), bell[0], 1))
	}
	send(t, far, trainOf(b.LocalAddr(), pattern(200, 2), 200))
	if n := drain(200); n != 1 {
		t.Error("a datagram behind bells wasn't there")
	}
}

// TestNeighborCorrupt: when the memory shared with a neighbor is corrupt, sockets carry the datagrams instead, and only
// what was in that memory is lost.
func TestNeighborCorrupt(t *testing.T) {
	a, b := near(t, loop4, Config{})
	in := receiveAll(t, b)
	send(t, a, trainOf(b.LocalAddr(), pattern(100, 1), 100))
	in.next(t)
	garble(t)
	send(t, listen(t, loop4, Config{}), trainOf(b.LocalAddr(), bell[0], 1))
	if !soon.Until(func() bool { return b.near.table.Link(a.local) == nil && a.near.table.Link(b.local) == nil }) {
		t.Fatal("memory is still shared")
	}
	shared := a.counters.TxShared.Load()
	for i := range 100 {
		payload := pattern(100, uint64(i))
		send(t, a, trainOf(b.LocalAddr(), payload, 100))
		if got := in.next(t); !bytes.Equal(got, payload) {
			t.Fatal("another datagram arrived")
		}
	}
	if a.counters.TxShared.Load() != shared {
		t.Error("memory is shared again at once")
	}
}

// garble sets the write positions of all rings in this process to impossible values.
func garble(t *testing.T) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for line := range strings.Lines(string(maps)) {
		var from int64
		if _, err := fmt.Sscanf(line, "%x-", &from); err != nil || !strings.Contains(line, "nvmeof rings") {
			continue
		}
		for i := range int64(2) {
			// It fails where another test's has been unmapped meanwhile.
			_, _ = memory.WriteAt([]byte{7, 7, 7, 7, 7, 7, 7, 7}, from+i*ring.Size)
		}
	}
}

// TestNeighborReplaced: when a program that shared memory is replaced at its address by one that doesn't, that one is
// reached.
func TestNeighborReplaced(t *testing.T) {
	a, b := near(t, loop4, Config{})
	_ = b.Close()
	c, err := Listen(b.LocalAddr(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	in := receiveAll(t, c)
	payload, got := pattern(100, 1), bell[0] // for b: one comes each time that a doesn't know yet that b is gone
	if !soon.Until(func() bool {
		send(t, a, trainOf(c.LocalAddr(), payload, 100))
		for len(in.datagrams) > 0 && bytes.Equal(got, bell[0]) {
			got = in.next(t)
		}
		return !bytes.Equal(got, bell[0])
	}) {
		t.Fatal("nothing arrives")
	}
	if !bytes.Equal(got, payload) {
		t.Error("another datagram arrived")
	}
}

// TestNeighborsClose: Close wakes a sleeping receiver, and nothing works after it.
func TestNeighborsClose(t *testing.T) {
	for i := range 50 {
		a, b := near(t, loop4, Config{})
		got := make(chan error)
		go func() {
			_, err := b.Recv(make([]Received, 1))
			got <- err
		}()
		if i%2 == 0 {
			<-soon.After(2 * time.Millisecond) // b sleeps most likely
		}
		_ = b.Close()
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Fatalf("Recv returned %v", err)
		}
		if _, err := b.TryRecv(make([]Received, 1)); !errors.Is(err, ErrClosed) {
			t.Fatalf("TryRecv after Close returned %v", err)
		}
		if _, err := b.Send(nil); !errors.Is(err, ErrClosed) {
			t.Fatalf("Send after Close returned %v", err)
		}
		_ = a.Close()
	}
}

// TestNeighborsCloseAnytime: whenever either closes, nothing hangs, and what was received stays readable, though the
// garbage collector unmaps what it can.
func TestNeighborsCloseAnytime(t *testing.T) {
	for i := range 20 {
		a, b := near(t, loop4, Config{})
		var running sync.WaitGroup
		var sum atomic.Uint64
		for _, c := range []*conn{a, b} {
			to := a.LocalAddr()
			if c == a {
				to = b.LocalAddr()
			}
			for range 2 {
				running.Go(func() {
					trains := []Train{trainOf(to, pattern(60_000, 1), 4000), trainOf(to, pattern(100, 1), 100)}
					for {
						if _, err := c.Send(trains); err != nil {
							return
						}
					}
				})
			}
			running.Go(func() {
				rx := make([]Received, RecvBatch)
				for {
					n, err := c.Recv(rx)
					if err != nil {
						return
					}
					if c.isClosed() {
						<-c.done
						runtime.GC()
					}
					for _, r := range rx[:n] {
						for _, x := range r.Buf {
							sum.Add(uint64(x))
						}
					}
				}
			})
		}
		running.Add(1) // else all may have ended, and be waited for no more, before the last Close begins
		time.AfterFunc(time.Duration(i)*250*time.Microsecond, func() {
			defer running.Done()
			for _, c := range []*conn{a, b, a} {
				running.Go(func() { _ = c.Close() })
			}
			runtime.GC()
		})
		running.Wait()
	}
}

// TestNeighborLastWords: what was sent before Close is received after it, as by a socket.
func TestNeighborLastWords(t *testing.T) {
	a, b := near(t, loop4, Config{})
	const sent = 5
	for i := range sent {
		send(t, a, trainOf(b.LocalAddr(), pattern(100, uint64(i)), 100))
	}
	_ = a.Close()
	if !soon.Until(func() bool { return b.near.table.Link(a.local) == nil }) {
		t.Fatal("the link has outlived a neighbor")
	}
	in := receiveAll(t, b)
	for i := range sent {
		if got := in.next(t); !bytes.Equal(got, pattern(100, uint64(i))) {
			t.Fatal("another datagram arrived")
		}
	}
	if !soon.Until(func() bool { return !b.near.table.Linked() }) {
		t.Error("the link is still known when all was received")
	}
}

// TestNeighborReopened: a program that finds the port free after Close finds the name free too.
func TestNeighborReopened(t *testing.T) {
	for range 100 {
		a := listen(t, loop4, Config{ShareMemory: true})
		closed := make(chan error)
		go func() { closed <- a.Close() }()
		var port *net.UDPConn
		err := error(unix.EADDRINUSE)
		for errors.Is(err, unix.EADDRINUSE) {
			port, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(a.LocalAddr()))
		}
		if err != nil {
			t.Fatal(err)
		}
		name, err := neighbor.Listen(a.LocalAddr(), func(netip.Addr) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		_ = name.Close()
		_ = port.Close()
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
	}
}

// TestNeighborNameTaken: if another program has the name, the error says that the port is in use. It isn't to those who
// go without shared memory.
func TestNeighborNameTaken(t *testing.T) {
	a := listen(t, loop4, Config{ShareMemory: true})
	_ = a.Close()
	squatter, err := neighbor.Listen(a.local, func(netip.Addr) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	defer squatter.Close()
	if _, err := Listen(a.local, Config{ShareMemory: true}); !errors.Is(err, ErrInUse) {
		t.Errorf("Listen returned %v, want ErrInUse", err)
	}
	if c, err := Listen(a.local, Config{}); err != nil {
		t.Errorf("without shared memory: %v", err)
	} else {
		_ = c.Close()
	}
	listen(t, loop4, Config{ShareMemory: true})
}

// TestNeighborsTrain: an invalid train is refused, not truncated.
func TestNeighborsTrain(t *testing.T) {
	a, b := near(t, loop4, Config{})
	good := trainOf(b.LocalAddr(), pattern(100, 1), 100)
	long := Train{Dst: b.LocalAddr(), Parts: [][]byte{make([]byte, MaxTrainBytes+1)}, Bytes: MaxTrainBytes + 1, SegmentSize: MaxTrainBytes + 1}
	other := good
	other.Bytes--
	for _, bad := range []Train{long, other, {Dst: b.LocalAddr()}} {
		if n, err := a.Send([]Train{good, bad, good}); n != 1 || !errors.Is(err, ErrTrain) {
			t.Errorf("Send took %d trains, and returned %v", n, err)
		}
	}
}

func TestNeighborsAllocateNothing(t *testing.T) {
	a, b := near(t, loop4, Config{})
	trains := []Train{trainOf(b.LocalAddr(), pattern(10_000, 1), 4000), trainOf(b.LocalAddr(), pattern(10_000, 1), 4000)}
	rx := make([]Received, RecvBatch)
	if n := testing.AllocsPerRun(500, func() {
		if _, err := a.Send(trains); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < len(trains); {
			n, err := b.Recv(rx)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
	}); n > 0 {
		t.Errorf("%v allocations for two trains", n)
	}
}
