package roce

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestWindowGrows: a window that is used doubles in a round trip until it reaches its threshold, and then grows by a
// large packet in each (as TCP's does, RFC 5681). It never exceeds its maximum. One that isn't used stays as it is.
func TestWindowGrows(t *testing.T) {
	const start, most = 64 << 10, 300 << 10
	trip := func(w *window, piece int) { // acknowledges what is on its way, in pieces, and keeps the window full
		w.sent(w.room())
		for n := w.size; n > 0; n -= piece {
			w.acked(min(n, piece))
			w.sent(w.room())
		}
	}
	for _, piece := range []int{1000, 4 << 10, 60 << 10} {
		w := newWindow(start, minWindow, most)
		for _, want := range []int{2 * start, 4 * start, most, most} {
			if trip(&w, piece); w.size != want {
				t.Errorf("in pieces of %d: %d bytes where it doubles, want %d", piece, w.size, want)
			}
		}
		w = newWindow(start, minWindow, most)
		w.threshold = start
		for size := start; size+growth < most; {
			trip(&w, piece)
			if grown := w.size - size; grown < growth*8/10 || grown > growth {
				t.Fatalf("in pieces of %d: from %d bytes it grows by %d, want about %d", piece, size, grown, growth)
			}
			size = w.size
		}
		for range 3 {
			trip(&w, piece)
		}
		if w.size != most {
			t.Errorf("in pieces of %d: %d bytes in the end, want %d", piece, w.size, most)
		}
	}
	w := newWindow(start, minWindow, most)
	for range 1000 {
		w.sent(start/2 - 1)
		w.acked(start/2 - 1)
	}
	if w.size != start {
		t.Errorf("%d bytes, where it isn't used", w.size)
	}
}

// TestWindowShrinks: losses halve a window once in a round trip, never below its minimum or below the floor for a few
// losses, and never open it.
func TestWindowShrinks(t *testing.T) {
	const rtt = time.Millisecond
	for _, c := range []struct{ size, floor, want int }{
		{64 << 10, 0, 32 << 10},
		{12 << 10, 0, minWindow},
		{minWindow, 0, minWindow},
		{100 << 10, 64 << 10, 64 << 10},
		{200 << 10, 64 << 10, 100 << 10},
		{32 << 10, 64 << 10, 32 << 10},
	} {
		w := newWindow(c.size, minWindow, 1<<20)
		w.halve(c.floor, time.Second, rtt)
		w.halve(c.floor, time.Second+rtt-1, rtt)
		if w.size != c.want {
			t.Errorf("%d bytes of %d with a floor of %d, want %d", w.size, c.size, c.floor, c.want)
		}
		w.halve(0, time.Second+rtt, rtt)
		if want := max(c.want/2, minWindow); w.size != want {
			t.Errorf("%d bytes in the next round trip, want %d", w.size, want)
		}
	}
}

// TestWindowWithinBound: Config.maxWindow bounds what is on its way to a peer from the start, and what is asked for.
func TestWindowWithinBound(t *testing.T) {
	const bound = 16 << 10
	for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead} {
		synctest.Test(t, func(t *testing.T) {
			r := newRaw(t, pairConfig{device: Config{maxWindow: bound}, memory: 64 << 10})
			r.dev.post(verbs.SendWR{Opcode: op, SGList: r.dev.sge(0, 64<<10), RemoteAddr: 1 << 40, RKey: 7})
			r.answers()
			bytes := 0
			for _, p := range r.got {
				if p.Opcode == wire.RCReadRequest {
					bytes += int(p.RETH.Length)
				} else {
					bytes += len(p.Payload) + packetCost
				}
			}
			if bytes > bound || bytes < bound*3/4 {
				t.Errorf("%v: %d bytes, where %d may be outstanding", op, bytes, bound)
			}
		})
	}
}

// TestFewLossesAreChance: losses found among what arrived reduce a window only if within a round trip they are more
// than a fifth of it, or of 64 KiB if it is smaller, or if packets are delayed. Otherwise they only end its fast
// growth.
func TestFewLossesAreChance(t *testing.T) {
	const rtt, packet = time.Millisecond, 1 << 10
	quick := &path{rtt: rtt, rttLast: rtt, rttMin: minimum{now: rtt}}
	slow := &path{rtt: rtt, rttLast: 2*rtt + 51*time.Microsecond, rttMin: minimum{now: rtt}}
	uneven := &path{rtt: rtt, rttVar: rtt / 16, rttLast: 3 * rtt, rttMin: minimum{now: rtt}}
	veryUneven := &path{rtt: rtt, rttVar: rtt, rttLast: 3 * rtt, rttMin: minimum{now: rtt}}
	for _, c := range []struct {
		name   string
		path   *path
		size   int
		lost   int // packets …
		within time.Duration
		want   int
	}{
		{"few", quick, 512 << 10, 102, rtt / 2, 512 << 10},
		{"a fifth", quick, 512 << 10, 103, rtt / 2, 256 << 10},
		{"a fifth, but not of a round trip", quick, 512 << 10, 103, 4 * rtt, 512 << 10},
		{"few of 64 KiB", quick, 32 << 10, 12, rtt / 2, 32 << 10},
		{"a fifth of 64 KiB", quick, 32 << 10, 13, rtt / 2, 16 << 10},
		{"one, with delay", slow, 512 << 10, 1, 0, 256 << 10},
		{"one, with delay in a small window", slow, 100 << 10, 1, 0, 64 << 10},
		{"one, with uneven delay", uneven, 160 << 10, 1, 0, (64 + 160/4) << 10},
		{"one, with very uneven delay", veryUneven, 1 << 20, 1, 0, 896 << 10},
	} {
		w := newWindow(c.size, minWindow, 1<<30)
		now := time.Second
		for range c.lost {
			w.foundLost(packet, c.path, now)
			now += c.within / time.Duration(c.lost)
		}
		if w.size != c.want || w.threshold != c.want {
			t.Errorf("%s: a window of %d has %d bytes and the threshold %d, want %d", c.name, c.size, w.size, w.threshold, c.want)
		}
	}
}

// TestSilenceWasLate: a cut for silence is undone if what was awaited has come late, unless the window was cut for
// another reason meanwhile.
func TestSilenceWasLate(t *testing.T) {
	const size, most, rtt = 64 << 10, 1 << 20, time.Millisecond
	silent := func() *window {
		w := newWindow(size, minWindow, most)
		w.silent(2*time.Second, rtt)
		return &w
	}
	for _, c := range []struct {
		name            string
		do              func(w *window)
		size, threshold int
	}{
		{"late", func(w *window) { w.wasLate(time.Second) }, size, most},
		{"what was sent after the cut", func(w *window) { w.wasLate(3 * time.Second) }, size / 2, size / 2},
		{"cut again", func(w *window) { w.marked(3*time.Second, rtt); w.wasLate(time.Second) }, size * 3 / 8, size * 3 / 8},
		{"lost meanwhile", func(w *window) { w.foundLost(1, &path{}, 3*time.Second); w.wasLate(time.Second) }, size / 2, size / 2},
		{"twice", func(w *window) { w.wasLate(time.Second); w.lost(3*time.Second, rtt); w.wasLate(time.Second) }, size / 2, size / 2},
	} {
		w := silent()
		if c.do(w); w.size != c.size || w.threshold != c.threshold {
			t.Errorf("%s: %d bytes and the threshold %d, want %d and %d", c.name, w.size, w.threshold, c.size, c.threshold)
		}
	}
}
