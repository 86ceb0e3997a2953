package rdma

import (
	"net/netip"
	"sync"

	"github.com/nvme-anywhere/nvmeof/internal/crowd"
)

// budget limits what connections hold before their hosts have proved anything: their number, and the memory for their
// buffers. One host can't have all of it; and when little is left, connections whose hosts still haven't proved
// anything give way to new ones (package crowd).
type budget struct {
	bytes int64 // for buffers, in all
	conns int   // per address

	mu        sync.Mutex
	taken     int64
	peers     map[netip.Addr]peerBudget
	newcomers crowd.Crowd[*targetConn]
}

type peerBudget struct {
	bytes int64
	conns int
}

// take gives c the memory for n bytes of buffers; ok is false if that is too much, for its peer or for all. The
// connections in leave have to end, to make room for the next one.
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

// makeRoom chooses the connections that have to end for n more bytes of peer. If these n bytes would leave less than an
// eighth of the budget, or less than n, it chooses as many connections as hold n bytes. Called with mu held.
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

// proved records that c may stay.
func (b *budget) proved(c *targetConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newcomers.Remove(c.newcomer)
}

// giveBack returns what take gave to c.
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
