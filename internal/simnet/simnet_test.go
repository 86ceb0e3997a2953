package simnet

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	addrA = netip.MustParseAddr("192.0.2.1")
	addrB = netip.MustParseAddr("192.0.2.2")
)

func listen(t *testing.T, n *Network, addr netip.Addr, c Config) *Endpoint {
	t.Helper()
	e, err := n.Listen(netip.AddrPortFrom(addr, 4791), c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// pair makes a network with two endpoints.
func pair(t *testing.T, c Config) (n *Network, a, b *Endpoint) {
	t.Helper()
	n = New(1)
	return n, listen(t, n, addrA, c), listen(t, n, addrB, c)
}

func train(dst *Endpoint, segment int, payload []byte) udp.Train {
	return udp.Train{Dst: dst.addr, Parts: [][]byte{payload}, Bytes: len(payload), SegmentSize: segment}
}

func send(t *testing.T, from, to *Endpoint, payloads ...string) {
	t.Helper()
	for _, p := range payloads {
		if n, err := from.Send([]udp.Train{train(to, len(p), []byte(p))}); n != 1 || err != nil {
			t.Fatalf("Send = %d, %v", n, err)
		}
	}
}

// drain reads what arrives within the given time and returns the datagrams.
func drain(t *testing.T, e *Endpoint, within time.Duration) (got []string) {
	t.Helper()
	time.Sleep(within)
	rx := make([]udp.Received, 4)
	for {
		n, err := e.TryRecv(rx)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return got
		}
		for i := range rx[:n] {
			for d := range rx[i].Datagrams() {
				got = append(got, string(d))
			}
		}
	}
}

func wantDatagrams(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("received %q, want %q", got, want)
	}
}

func TestLatencyIsVirtual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, Config{})
		n.SetLink(addrA, addrB, Link{Latency: time.Hour})
		start := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			rx := make([]udp.Received, 4)
			for _, want := range []string{"there", "again"} {
				if k, err := b.Recv(rx); k != 1 || err != nil || string(rx[0].Buf) != want {
					t.Errorf("Recv = %d, %v, %q", k, err, rx[0].Buf)
				}
				if rx[0].Src != a.addr || rx[0].Dst != addrB {
					t.Errorf("from %v to %v", rx[0].Src, rx[0].Dst)
				}
				send(t, b, a, "back")
			}
		}()
		synctest.Wait() // Recv blocks durably with nothing under way
		send(t, a, b, "there")
		time.Sleep(time.Minute)
		send(t, a, b, "again")
		<-done
		if took := time.Since(start); took != time.Hour+time.Minute {
			t.Errorf("one way took %v", took)
		}
		wantDatagrams(t, drain(t, a, 0), "back", "back")
	})
}

func TestTrainsAreSplitAndCoalesced(t *testing.T) {
	for _, coalesce := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			_, a, b := pair(t, Config{Coalesce: coalesce})
			payload := []byte("aaaabbbbcc")
			tr := train(b, 4, payload)
			tr.Parts = [][]byte{payload[:3], payload[3:3], payload[3:]}
			if k, err := a.Send([]udp.Train{tr}); k != 1 || err != nil {
				t.Fatal(k, err)
			}
			copy(payload, "XXXXXXXXXX") // it was copied
			send(t, a, b, "dddd", "eeee")
			rx := make([]udp.Received, 8)
			k, err := b.Recv(rx)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range rx[:k] {
				got = append(got, fmt.Sprintf("%s/%d", r.Buf, r.SegmentSize))
			}
			want := []string{"aaaa/4", "bbbb/4", "cc/2", "dddd/4", "eeee/4"}
			if coalesce {
				want = []string{"aaaabbbbcc/4", "ddddeeee/4"}
			}
			wantDatagrams(t, got, want...)
		})
	}
}

func TestReceivedIsSpoiled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t, Config{})
		send(t, a, b, "kept")
		rx := make([]udp.Received, 1)
		if _, err := b.Recv(rx); err != nil {
			t.Fatal(err)
		}
		kept := rx[0].Buf
		if _, err := b.TryRecv(rx); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(kept, []byte("kept")) {
			t.Error("what Recv lent is still readable after the next call")
		}
	})
}

// sendMarkable sends a datagram with a number, of 100 bytes with headers, that may be marked
// instead of dropped.
func sendMarkable(t *testing.T, from, to *Endpoint, number int) {
	t.Helper()
	tr := train(to, 72, bytes.Repeat([]byte{'0' + byte(number)}, 72))
	tr.TrafficClass = 2
	if _, err := from.Send([]udp.Train{tr}); err != nil {
		t.Fatal(err)
	}
}

// wantQueued receives three of those from a queue that one leaves each millisecond, the last of
// which was marked.
func wantQueued(t *testing.T, e *Endpoint) {
	t.Helper()
	start := time.Now()
	rx := make([]udp.Received, 4)
	for i := range 3 {
		if k, err := e.Recv(rx); k != 1 || err != nil || rx[0].Buf[0] != '0'+byte(i) {
			t.Fatalf("Recv = %d, %v", k, err)
		}
		if got, want := time.Since(start), time.Duration(i+1)*time.Millisecond; got != want {
			t.Errorf("datagram %d after %v, want %v", i, got, want)
		}
		if got, want := rx[0].ECN() == ecnCE, i == 2; got != want {
			t.Errorf("datagram %d marked: %v, want %v", i, got, want)
		}
	}
}

func TestBandwidthAndQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, Config{})
		// 100 bytes with headers, one per millisecond, three may wait.
		n.SetDefault(Link{Bandwidth: 100_000, Queue: 300, MarkAbove: 150})
		for i := range 5 {
			sendMarkable(t, a, b, i)
		}
		wantQueued(t, b)
		wantDatagrams(t, drain(t, b, time.Second))
		if s := n.Stats(); s.QueueFull != 2 || s.Marked != 1 || s.Delivered != 3 || s.Sent != 5 {
			t.Errorf("%+v", s)
		}
	})
}

func TestReceiveBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, Config{RecvBuffer: 10})
		send(t, a, b, "1234", "5678", "too much", "90")
		wantDatagrams(t, drain(t, b, time.Second), "1234", "5678", "90")
		send(t, a, b, "0123456789")
		wantDatagrams(t, drain(t, b, time.Second), "0123456789")
		if s := n.Stats(); s.BufferFull != 1 || s.Delivered != 4 {
			t.Errorf("%+v", s)
		}
	})
}

func TestMTUAndUnbound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, Config{MTU: 100})
		send(t, a, b, string(make([]byte, 72)), string(make([]byte, 73)))
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		send(t, a, b, "gone")
		if s := n.Stats(); s.Oversize != 1 || s.Unbound != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestRandomFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, Config{})
		const count = 20000
		n.SetDefault(Link{
			Latency: time.Millisecond, Jitter: 10 * time.Microsecond,
			Loss: 0.1, Duplicate: 0.05, Corrupt: 0.02, Reorder: 0.01,
		})
		var got []string
		for i := range count {
			send(t, a, b, fmt.Sprintf("%08d", i))
			if i%100 == 0 {
				got = append(got, drain(t, b, 0)...)
			}
			time.Sleep(time.Microsecond)
		}
		got = append(got, drain(t, b, time.Second)...)
		s := n.Stats()
		if len(got) != s.Delivered || s.Delivered != count-s.Lost+s.Duplicated {
			t.Errorf("%d received: %+v", len(got), s)
		}
		for what, c := range map[string]struct {
			n int
			p float64
		}{"lost": {s.Lost, 0.1}, "duplicated": {s.Duplicated, 0.05}, "corrupted": {s.Corrupted, 0.02}, "reordered": {s.Reordered, 0.01}} {
			if want := c.p * count; float64(c.n) < want*0.8 || float64(c.n) > want*1.2 {
				t.Errorf("%d %s, want about %.0f", c.n, what, want)
			}
		}
		overtaken := 0
		for i := 1; i < len(got); i++ {
			if got[i] < got[i-1] {
				overtaken++
			}
		}
		if overtaken < 100 {
			t.Errorf("%d datagrams were overtaken", overtaken)
		}
	})
}

func TestSeedRepeats(t *testing.T) {
	run := func(seed uint64) (got []string) {
		synctest.Test(t, func(t *testing.T) {
			n := New(seed)
			a, b := listen(t, n, addrA, Config{}), listen(t, n, addrB, Config{})
			n.SetDefault(Link{Jitter: time.Millisecond, Loss: 0.3, Duplicate: 0.3, Corrupt: 0.3})
			for i := range 100 {
				send(t, a, b, fmt.Sprint(i))
			}
			got = drain(t, b, time.Second)
		})
		return got
	}
	first := run(7)
	wantDatagrams(t, run(7), first...)
	if fmt.Sprint(run(8)) == fmt.Sprint(first) {
		t.Error("another seed gives the same run")
	}
}

func TestCutIsOneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, Config{})
		anyone := netip.Addr{}
		for _, w := range []way{{addrA, addrB}, {addrA, anyone}, {anyone, addrB}} {
			n.Cut(w.from, w.to)
			send(t, a, b, "lost")
			send(t, b, a, "arrives")
			wantDatagrams(t, drain(t, b, time.Second))
			wantDatagrams(t, drain(t, a, time.Second), "arrives")
			n.Restore(w.from, w.to)
			send(t, a, b, "again")
			wantDatagrams(t, drain(t, b, time.Second), "again")
		}
		n.Cut(anyone, anyone)
		send(t, b, a, "lost")
		wantDatagrams(t, drain(t, a, time.Second))
	})
}

func TestFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, Config{})
		n.SetFilter(func(d *Datagram) Action {
			if d.Src != a.addr || d.Dst != b.addr {
				t.Errorf("filter sees %v → %v", d.Src, d.Dst)
			}
			switch string(d.Payload) {
			case "drop":
				return Action{Drop: true}
			case "late":
				return Action{Delay: time.Second}
			case "more":
				return Action{Copies: 2}
			case "edit":
				d.Payload[0] = 'E'
			case "swap":
				d.Payload = []byte("longer")
			case "last":
				if d.Index != 1 {
					t.Errorf("index %d in the train", d.Index)
				}
			}
			return Action{}
		})
		send(t, a, b, "drop", "late", "more", "edit", "swap")
		if _, err := a.Send([]udp.Train{train(b, 4, []byte("1st.last"))}); err != nil {
			t.Fatal(err)
		}
		wantDatagrams(t, drain(t, b, 0), "more", "more", "more", "Edit", "longer", "1st.", "last")
		wantDatagrams(t, drain(t, b, time.Second), "late")
		n.SetFilter(nil)
		send(t, a, b, "drop")
		wantDatagrams(t, drain(t, b, 0), "drop")
	})
}

func TestCloseWakesRecv(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, Config{})
		n.SetDefault(Link{Latency: time.Hour})
		send(t, b, a, "too late")
		result := make(chan error)
		go func() {
			_, err := a.Recv(make([]udp.Received, 1))
			result <- err
		}()
		synctest.Wait()
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-result; !errors.Is(err, udp.ErrClosed) {
			t.Errorf("Recv of a closed endpoint: %v", err)
		}
		for op, err := range map[string]error{
			"Close":   a.Close(),
			"Send":    second(a.Send([]udp.Train{train(b, 1, []byte("x"))})),
			"TryRecv": second(a.TryRecv(make([]udp.Received, 1))),
		} {
			if !errors.Is(err, udp.ErrClosed) {
				t.Errorf("%s of a closed endpoint: %v", op, err)
			}
		}
		if again := listen(t, n, addrA, Config{}); again.addr != a.addr {
			t.Errorf("the address is not free again: %v", again.addr)
		}
	})
}

func second(_ int, err error) error { return err }

func TestListenErrors(t *testing.T) {
	n := New(1)
	listen(t, n, addrA, Config{})
	for _, c := range []struct {
		addr string
		want error
	}{
		{"192.0.2.1:4791", udp.ErrInUse},
		{"[::ffff:192.0.2.1]:4791", udp.ErrInUse},
		{"0.0.0.0:4791", udp.ErrNotLocal},
	} {
		if _, err := n.Listen(netip.MustParseAddrPort(c.addr), Config{}); !errors.Is(err, c.want) {
			t.Errorf("Listen(%s): %v, want %v", c.addr, err, c.want)
		}
	}
	if _, err := n.Listen(netip.AddrPortFrom(addrB, 1), Config{MTU: -1}); err == nil {
		t.Error("Listen takes a negative MTU")
	}
	x, err := n.Listen(netip.AddrPortFrom(addrA, 0), Config{})
	if err != nil {
		t.Fatal(err)
	}
	y, err := n.Listen(netip.AddrPortFrom(addrA, 0), Config{})
	if err != nil || x.addr == y.addr || y.addr.Port() == 0 {
		t.Errorf("two free ports: %v and %v, %v", x.addr, y.addr, err)
	}
}

func TestSendErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t, Config{})
		good := train(b, 2, []byte("abcd"))
		bad := good
		bad.Bytes++
		if k, err := a.Send([]udp.Train{good, bad, good}); k != 1 || !errors.Is(err, udp.ErrTrain) {
			t.Errorf("Send of a train that contradicts itself = %d, %v", k, err)
		}
		for name, tr := range map[string]udp.Train{
			"segment size 0": train(b, 0, []byte("a")),
			"too many":       train(b, 1, make([]byte, udp.MaxTrainSegments+1)),
			"too long":       train(b, 1400, make([]byte, udp.MaxTrainBytes+1)),
			"other family":   {Dst: netip.MustParseAddrPort("[2001:db8::1]:4791")},
			"no address":     {},
		} {
			if k, err := a.Send([]udp.Train{tr}); k != 0 || !errors.Is(err, udp.ErrTrain) {
				t.Errorf("%s: Send = %d, %v", name, k, err)
			}
		}
		if !a.Segmentation() {
			t.Error("no segmentation from the start")
		}
		a.RefuseSegmentation()
		if k, err := a.Send([]udp.Train{train(b, 4, []byte("abcd")), good}); k != 1 || !errors.Is(err, udp.ErrSegmentation) {
			t.Errorf("Send = %d, %v after segmentation is refused", k, err)
		}
		if a.Segmentation() {
			t.Error("Segmentation is still reported")
		}
	})
}

// TestRealTime shows that a network works outside of a bubble too.
func TestRealTime(t *testing.T) {
	n := New(1)
	a, b := listen(t, n, addrA, Config{}), listen(t, n, addrB, Config{})
	n.SetDefault(Link{Latency: time.Millisecond})
	send(t, a, b, "hello")
	rx := make([]udp.Received, 1)
	if k, err := b.Recv(rx); k != 1 || err != nil || string(rx[0].Buf) != "hello" {
		t.Errorf("Recv = %d, %v", k, err)
	}
}
