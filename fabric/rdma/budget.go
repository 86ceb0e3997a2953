package rdma

import (
	"net/netip"
	"sync"
)

// budget is what connections have before a host has proved anything: themselves, and the memory
// for their buffers. One host can't have all of it.
type budget struct {
	bytes int64 // for buffers
	conns int   // of one address

	mu    sync.Mutex
	taken int64
	peers map[netip.Addr]peerBudget
}

type peerBudget struct {
	bytes int64
	conns int
}

// take reports false where a connection with n bytes of buffers is too much, for the peer or for
// all.
func (b *budget) take(peer netip.Addr, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[peer]
	if b.taken+n > b.bytes || p.bytes+n > b.bytes/4*3 || p.conns == b.conns {
		return false
	}
	b.taken += n
	b.peers[peer] = peerBudget{p.bytes + n, p.conns + 1}
	return true
}

func (b *budget) giveBack(peer netip.Addr, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[peer]
	b.taken -= n
	b.peers[peer] = peerBudget{p.bytes - n, p.conns - 1}
	if p.conns == 1 {
		delete(b.peers, peer)
	}
}
