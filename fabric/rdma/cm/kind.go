package cm

// Two devices of one maker know each other by the options of enhanced connection establishment
// (ECE), which are the AttributeModifier of REQ and REP: the maker's vendor ID, and in the byte
// behind it whether this is the question or the answer.
//
// The field for a vendor ID that ECE has in both messages stays zero. rdma-core asks its device
// for the options of whatever ID is there: as the active side it gives up the connection where the
// device can't (rxe), and as the passive side it sends the ID back, whoever's that is. Without an
// ID it looks at no options, and what it sends of its own is no answer to ours. The kernel's
// consumers look at neither.

const (
	offered  = 1
	answered = 2
)

// kindOffer is what a REQ has as options; 0 where the device has no vendor ID.
func (m *Manager) kindOffer() uint32 { return m.kindOptions(offered) }

// kindAnswer is what the REP of the same kind of device has.
func (m *Manager) kindAnswer() uint32 { return m.kindOptions(answered) }

func (m *Manager) kindOptions(role uint32) uint32 {
	if m.attr.VendorID == 0 {
		return 0
	}
	return m.attr.VendorID<<8 | role
}

// answerTo is what the REP to req has: nothing for a stranger.
func (m *Manager) answerTo(req *REQ) uint32 {
	if req.Options != m.kindOffer() {
		return 0
	}
	return m.kindAnswer()
}

// vendorOf is the vendor ID of a peer that is of this device's kind, or isn't.
func (m *Manager) vendorOf(same bool) uint32 {
	if !same {
		return 0
	}
	return m.attr.VendorID
}
