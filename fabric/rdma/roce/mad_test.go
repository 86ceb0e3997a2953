package roce

import (
	"net/netip"
	"testing"
)

// TestWaitingDatagramsGrow: datagrams that wait stay in order, with their peers and their content, wherever the oldest is
// when there is no room for another, up to the backlog.
func TestWaitingDatagramsGrow(t *testing.T) {
	for taken := range 8 { // of the first ones, while there is room for 8
		var r madRing
		next, oldest := 0, 0
		peer := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
		want := make([]byte, madSize)
		push := func() bool {
			fill(want, next)
			if !r.push(peer(next), want) {
				return false
			}
			next++
			return true
		}
		pop := func() {
			t.Helper()
			fill(want, oldest)
			if m := r.front(); m.peer != peer(oldest) || string(m.data[:]) != string(want) {
				t.Fatalf("%d taken at first: datagram %d is another one, of %v", taken, oldest, m.peer)
			}
			r.pop()
			oldest++
		}
		for range 8 {
			push()
		}
		for range taken {
			pop()
		}
		for push() {
		}
		if n := next - oldest; n != madBacklog {
			t.Fatalf("room for %d, want %d", n, madBacklog)
		}
		for oldest < next {
			pop()
		}
	}
}
