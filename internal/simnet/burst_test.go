package simnet

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// TestBurst: the fraction that is lost and the length of bursts match the model.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, Config{})
		const count, enter, leave = 50000, 0.01, 0.2
		n.SetDefault(Link{Burst: Burst{Enter: enter, Leave: leave}})
		var got []string
		for i := range count {
			send(t, a, b, fmt.Sprintf("%08d", i))
			if i%100 == 99 {
				got = append(got, drain(t, b, 0)...)
			}
		}
		lost := count - len(got)
		if want := count * enter / (enter + leave); float64(lost) < 0.8*want || float64(lost) > 1.2*want {
			t.Errorf("%d lost, want about %.0f", lost, want)
		}
		bursts, next := 0, 0
		for _, g := range got {
			i, err := strconv.Atoi(g)
			if err != nil {
				t.Fatal(err)
			}
			if i != next {
				bursts++
			}
			next = i + 1
		}
		if mean := float64(lost) / float64(bursts); mean < 0.8/leave || mean > 1.2/leave {
			t.Errorf("bursts of %.1f, want about %.1f", mean, 1/leave)
		}
	})
}

// TestPort: datagrams from several senders wait in one queue, and are marked and dropped there.
func TestPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, Config{})
		c := listen(t, n, addrB.Next(), Config{})
		n.SetPort(addrB, Port{Bandwidth: 100_000, Queue: 300, MarkAbove: 150})
		for i, from := range []*Endpoint{a, c, a, c} {
			sendMarkable(t, from, b, i)
		}
		if q := n.Queued(addrB); q != 300 || n.Queued(addrA) != 0 {
			t.Errorf("%d bytes wait, %d at the other port", q, n.Queued(addrA))
		}
		wantQueued(t, b)
		if s := n.Stats(); s.QueueFull != 1 || s.Marked != 1 || n.Queued(addrB) != 0 {
			t.Errorf("%+v, %d wait", s, n.Queued(addrB))
		}
	})
}

// TestMark: only datagrams whose sender is capable of ECN are marked at random.
func TestMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, Config{})
		n.SetDefault(Link{Mark: 1})
		for _, class := range []uint8{0, 2} {
			tr := train(b, 1, []byte("x"))
			tr.TrafficClass = class | 0x20
			if _, err := a.Send([]udp.Train{tr}); err != nil {
				t.Fatal(err)
			}
			rx := make([]udp.Received, 1)
			if _, err := b.Recv(rx); err != nil {
				t.Fatal(err)
			}
			if want := map[uint8]uint8{0: 0x20, 2: 0x23}[class]; rx[0].TrafficClass != want {
				t.Errorf("class %#x arrives as %#x", class|0x20, rx[0].TrafficClass)
			}
		}
		if s := n.Stats(); s.Marked != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestSeedOfTests(t *testing.T) {
	t.Setenv(seedEnv, "0x10")
	if s := SeedFor(t); s != 16 {
		t.Errorf("seed %d", s)
	}
}
