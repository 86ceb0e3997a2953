package cm

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
)

// Two devices of one maker know each other by the options of enhanced connection establishment
// (ECE), which are the AttributeModifier of REQ and REP: the maker's vendor ID, and in the byte
// behind it whether this is the question or the answer, and above that the features that the
// sender offers, or that hold.
//
// The field for a vendor ID that ECE has in both messages stays zero. rdma-core asks its device
// for the options of whatever ID is there: as the active side it gives up the connection where the
// device can't (rxe), and as the passive side it sends the ID back, whoever's that is. Without an
// ID it looks at no options, and what it sends of its own is no answer to ours. The kernel's
// consumers look at neither.

// The two bits of the role are other ones whenever devices of a maker come to do other things with each other than
// before: to those of before, which had 1 and 2, they are strangers.
const (
	offered  = 3
	answered = 0
	roleMask = 3

	featureShift = 2
	featureMask  = 0xff &^ roleMask
)

// kindOffer is what a REQ to peer has as options; 0 where the device has no vendor ID.
func (m *Manager) kindOffer(peer netip.Addr) uint32 {
	if m.attr.VendorID == 0 {
		return 0
	}
	return m.attr.VendorID<<8 | m.features(peer) | offered
}

// answerTo is what the REP to req, which came from peer, has: nothing for a stranger.
func (m *Manager) answerTo(req *mad.REQ, peer netip.Addr) uint32 {
	if !m.sameKind(req.Options, offered) {
		return 0
	}
	return m.attr.VendorID<<8 | m.features(peer)&req.Options | answered
}

// features are those that peer is offered, in their place in the options.
func (m *Manager) features(peer netip.Addr) uint32 {
	if m.cfg.VendorOptions == nil {
		return 0
	}
	return m.cfg.VendorOptions(peer) << featureShift & featureMask
}

// sameKind reports whether options of a message in that role are of this device's kind.
func (m *Manager) sameKind(options, role uint32) bool {
	return m.attr.VendorID != 0 && options&^featureMask == m.attr.VendorID<<8|role
}

// vendorOf is the vendor ID of who sent options: this device's, or none that is known.
func (m *Manager) vendorOf(options, role uint32) uint32 {
	if !m.sameKind(options, role) {
		return 0
	}
	return m.attr.VendorID
}

// featuresOf are those that options of this device's kind name, as Config.VendorOptions has them.
func (m *Manager) featuresOf(options, role uint32) uint32 {
	if !m.sameKind(options, role) {
		return 0
	}
	return options & featureMask >> featureShift
}
