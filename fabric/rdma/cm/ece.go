package cm

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
)

// Two devices of one vendor recognize each other by the options of enhanced connection establishment (ECE), which are
// the AttributeModifier of REQ and REP: the vendor ID, and in the low byte the role, that is, whether this is the offer
// or the answer, and above that the features that the sender offers or that are agreed on.
//
// The field for a vendor ID that ECE has in both messages stays zero. rdma-core asks its device for the options of
// whatever ID is there: as the active side it gives up the connection if the device can't do that (rxe), and as the
// passive side it sends the ID back, whoever's it is. Without an ID it ignores the options, and what it sends itself is
// not an answer to ours. The kernel's consumers ignore both.

// The two role bits change whenever devices of a vendor change what they do with each other: to older devices, which
// had 1 and 2, the newer ones are strangers.
const (
	offered  = 3
	answered = 0
	roleMask = 3

	featureShift = 2
	featureMask  = 0xff &^ roleMask
)

// kindOffer returns the options of a REQ to peer; 0 if the device has no vendor ID.
func (m *Manager) kindOffer(peer netip.Addr) uint32 {
	if m.attr.VendorID == 0 {
		return 0
	}
	return m.attr.VendorID<<8 | m.features(peer) | offered
}

// answerTo returns the options of the REP to req, which came from peer: 0 for a stranger.
func (m *Manager) answerTo(req *mad.REQ, peer netip.Addr) uint32 {
	if !m.sameKind(req.Options, offered) {
		return 0
	}
	return m.attr.VendorID<<8 | m.features(peer)&req.Options | answered
}

// features returns the features that are offered to peer, in their position in the options.
func (m *Manager) features(peer netip.Addr) uint32 {
	if m.cfg.VendorOptions == nil {
		return 0
	}
	return m.cfg.VendorOptions(peer) << featureShift & featureMask
}

// sameKind reports whether the options of a message in that role are from a device of this device's vendor.
func (m *Manager) sameKind(options, role uint32) bool {
	return m.attr.VendorID != 0 && options&^featureMask == m.attr.VendorID<<8|role
}

// vendorOf returns the vendor ID of the sender of options: this device's, or 0 if it is not recognized.
func (m *Manager) vendorOf(options, role uint32) uint32 {
	if !m.sameKind(options, role) {
		return 0
	}
	return m.attr.VendorID
}

// featuresOf returns the features that options name, in the form of Config.VendorOptions; 0 if they are not from this
// device's vendor.
func (m *Manager) featuresOf(options, role uint32) uint32 {
	if !m.sameKind(options, role) {
		return 0
	}
	return options & featureMask >> featureShift
}
