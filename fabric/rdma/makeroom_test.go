package rdma

import (
	"net/netip"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestMakeRoom: when the budget runs low, no more newcomers have to end than hold what the next connection takes; and of
// addresses whose connections have ended nothing is left.
func TestMakeRoom(t *testing.T) {
	const each, room = 4, 8
	b := &budget{bytes: room * each, conns: 1, peers: map[netip.Addr]peerBudget{}}
	var conns []*targetConn
	for i := range room {
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		c := &targetConn{attr: target.ConnAttr{Remote: netip.AddrPortFrom(addr, 1)}}
		leave, ok := b.take(c, each)
		want := 0
		if i == room-1 {
			want = 1
		}
		if !ok || len(leave) != want {
			t.Errorf("connection %d: %v, and %d have to end, want %d", i, ok, len(leave), want)
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		b.giveBack(c)
	}
	if b.taken != 0 || len(b.peers) != 0 {
		t.Errorf("%d bytes are taken, by %d addresses", b.taken, len(b.peers))
	}
}
