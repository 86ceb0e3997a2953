package cm

import (
	"slices"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
)

// Several devices may share an address, each with a Manager of its own. Our communication IDs contain the index of
// theirs, so that a message reaches the Manager of its connection, and a number that counts our connections:
//
//	bit    31 … 27  26 … 24          23 … 3  2 … 0
//	       random   count XOR index  random  index, or random if there is one Manager
//
// A message that names no ID of ours, a REQ or what concerns only that, goes to the Manager that the XOR of the sender's
// bits 24 to 26 and 0 to 2 selects. So the connections of a host of our kind go to each Manager in turn; and those of
// Linux, whose IDs count in the high byte. (Of 3, 5, 6 or 7 Managers some get more.) A peer that has restarted, and uses
// the number of a queue pair again, may come to another Manager than before, which asks the others (see elsewhere).

// MaxEngines is the largest number of Managers at one address.
const MaxEngines = 8

const (
	indexMask  = MaxEngines - 1
	countShift = 24
)

// Where a MAD has what selects its Manager: offsets in bytes of big-endian fields.
const (
	SteerAttribute = 16 // 2 bytes: AttributeID
	SteerREQ       = uint32(mad.AttrREQ)
	SteerSender    = mad.HeaderSize     // 4 bytes: the sender's ID
	SteerReceiver  = mad.HeaderSize + 4 // 4 bytes, not in a REQ: ours, or 0
	SteerShift     = countShift
)

// Join makes Managers that share an address ask each other for stale connections.
func Join(managers []*Manager) {
	for i, m := range managers {
		m.mu.Lock()
		m.siblings = slices.Concat(managers[:i], managers[i+1:])
		m.mu.Unlock()
	}
}

// elsewhere returns the connection to a peer's QP that another Manager at this address has, and that Manager; nil if
// none has one. Called without mu, as it takes that of the others.
func (m *Manager) elsewhere(qpn peerKey) (*Manager, *record) {
	m.mu.Lock()
	siblings := m.siblings
	m.mu.Unlock()
	for _, s := range siblings {
		s.mu.Lock()
		r := s.table.byQPN[qpn]
		s.mu.Unlock()
		if r != nil {
			return s, r
		}
	}
	return nil, nil
}

// commID returns an ID for a connection, which is random as far as it can be.
func (m *Manager) commID() uint32 {
	id, index, engines := random32(), uint32(m.cfg.Engine), uint32(max(m.cfg.Engines, 1))
	if engines > 1 {
		id = id&^indexMask | index
	}
	count := m.made*engines + index // of all Managers, if each makes as many
	m.made++
	return id&^(indexMask<<countShift) | (count^id)&indexMask<<countShift
}
