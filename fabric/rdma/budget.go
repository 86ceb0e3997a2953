package rdma

import (
	"net/netip"
	"sync"

	"github.com/nvme-anywhere/nvmeof/internal/crowd"
)

// budget is what connections have before a host has proved anything: themselves, and the memory
// for their buffers. One host can't have all of it; and where little is left, connections whose hosts
// have still proved nothing give way to those that come (package crowd).
type budget struct {
	bytes int64 // for buffers
	conns int   // of one address

	mu        sync.Mutex
	taken     int64
	peers     map[netip.Addr]peerBudget
	newcomers crowd.Crowd[*targetConn]
}

type peerBudget struct {
	bytes int64
	conns int
}

// take gives c the memory for n bytes of buffers; ok is false where that is too much, for its peer or for
// all. Those in leave are to end, so that there is room for the next one.
func (b *budget) take(c *targetConn, n int64) (leave []*targetConn, ok bool) {
	peer := c.attr.Remote.Addr()
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[peer]
	if p.bytes+n > b.bytes/4*3 || p.conns == b.conns {
		return nil, false
	}
	leave = b.makeRoom(peer, n)
	if b.taken+n > b.bytes {
		return leave, false
	}
	b.taken += n
	b.peers[peer] = peerBudget{p.bytes + n, p.conns + 1}
	c.budget, c.newcomer = n, b.newcomers.Add(peer, c)
	return leave, true
}

// makeRoom chooses who has to end for n more bytes of peer: where less than an eighth would be left, or not
// as much again, as many as have that much. Called with mu held.
func (b *budget) makeRoom(peer netip.Addr, n int64) (leave []*targetConn) {
	if b.taken+n+max(b.bytes/8, n) <= b.bytes {
		return nil
	}
	for freed := int64(0); freed < n; {
		m := b.newcomers.Yield(peer)
		if m == nil {
			break
		}
		leave = append(leave, m.Conn)
		freed += m.Conn.budget
	}
	return leave
}

// proved notes that c may stay.
func (b *budget) proved(c *targetConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newcomers.Remove(c.newcomer)
}

// giveBack ends what take gave c.
func (b *budget) giveBack(c *targetConn) {
	peer := c.attr.Remote.Addr()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newcomers.Remove(c.newcomer)
	p := b.peers[peer]
	b.taken -= c.budget
	b.peers[peer] = peerBudget{p.bytes - c.budget, p.conns - 1}
	if p.conns == 1 {
		delete(b.peers, peer)
	}
	c.budget = 0
}
