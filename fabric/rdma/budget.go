package rdma

import (
	"net/netip"
	"sync"
)

// budget is the memory for the buffers of connections, which are there before a host has proved
// anything. One host can't have all of it.
type budget struct {
	most int64 // bytes

	mu    sync.Mutex
	taken int64
	peers map[netip.Addr]int64
}

// take reports false where n bytes are too many, for the peer or for all.
func (b *budget) take(peer netip.Addr, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken+n > b.most || b.peers[peer]+n > b.most/4*3 {
		return false
	}
	b.taken += n
	b.peers[peer] += n
	return true
}

func (b *budget) giveBack(peer netip.Addr, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
	if b.peers[peer] -= n; b.peers[peer] == 0 {
		delete(b.peers, peer)
	}
}
