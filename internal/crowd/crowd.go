package crowd

import (
	"container/list"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/internal/pqueue"
)

// Crowd is the set of members that hold a place and haven't proved anything yet. The zero value is empty. Every call
// takes time logarithmic in the number of addresses.
type Crowd[C any] struct {
	peers map[netip.Addr]*peer
	most  pqueue.Queue[*peer]
	last  uint64 // number of the last member added
}

// Member is a member of a Crowd.
type Member[C any] struct {
	Conn C

	peer *peer // nil: it has left
	at   *list.Element
	came uint64
}

// peer is an address and its members.
type peer struct {
	addr    netip.Addr
	members list.List // oldest first
	oldest  uint64    // number of the oldest member
	index   int       // in Crowd.most
}

// Add adds a member, which holds a place.
func (c *Crowd[C]) Add(addr netip.Addr, conn C) *Member[C] {
	c.last++
	m := &Member[C]{Conn: conn, came: c.last}
	p := c.peers[addr]
	if p == nil {
		if c.peers == nil {
			c.peers, c.most = map[netip.Addr]*peer{}, newPeers()
		}
		p = &peer{addr: addr, oldest: m.came}
		c.peers[addr] = p
		c.most.Push(p)
	}
	m.peer, m.at = p, p.members.PushBack(m)
	c.most.Fix(p.index)
	return m
}

// Remove removes a member that has proved what it is, or has gone. It does nothing if the member has left already.
func (c *Crowd[C]) Remove(m *Member[C]) {
	p := m.peer
	if p == nil {
		return
	}
	m.peer = nil
	p.members.Remove(m.at)
	if p.members.Len() == 0 {
		c.most.Remove(p.index)
		delete(c.peers, p.addr)
		return
	}
	p.oldest = p.members.Front().Value.(*Member[C]).came
	c.most.Fix(p.index)
}

// Yield removes and returns the member that must make room for one more of addr, or nil if none must.
func (c *Crowd[C]) Yield(addr netip.Addr) *Member[C] {
	if c.most.Len() == 0 {
		return nil
	}
	p, has := c.most.First(), 0
	if own := c.peers[addr]; own != nil {
		has = own.members.Len()
	}
	if p.members.Len() <= has {
		return nil
	}
	m := p.members.Front().Value.(*Member[C])
	c.Remove(m)
	return m
}

// newPeers returns a queue with the peer that has the most members first; among equals, the one whose oldest member
// came first.
func newPeers() pqueue.Queue[*peer] {
	before := func(a, b *peer) bool {
		if n, m := a.members.Len(), b.members.Len(); n != m {
			return n > m
		}
		return a.oldest < b.oldest
	}
	return pqueue.New(before, func(p *peer, index int) { p.index = index })
}
