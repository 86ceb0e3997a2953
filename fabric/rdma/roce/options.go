package roce

import (
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// vendorID is that of this RNIC, from the numbers that anybody may administer for themselves
// (IEEE 802: the second bit of the first octet is set): "NVA".
const vendorID = 0x4e5641

// Bits of verbs.QPAttr.VendorOptions: what two devices of our kind may agree on beyond sending again
// only what is lost, which they always do.
const (
	// OptionNoICRC: packets of a queue pair have no ICRC; the field is there and zero, and nobody
	// looks at it. It is for peers on this host alone, whose packets never leave its memory.
	OptionNoICRC = 1 << iota

	// OptionLongSend: a packet of a SEND carries wire.LongSend bytes more than the path MTU, so that a
	// command with a block of data is one packet, and many of them make a train of equal ones.
	OptionLongSend

	// OptionWriteSend: a WRITE of one packet takes a SEND of up to wire.LongSend bytes behind it along.
	OptionWriteSend

	// OptionJumboData: packets of WRITEs, and of answers to READs, carry wire.JumboData bytes,
	// whatever the path MTU.
	OptionJumboData

	// OptionLongData: they carry wire.LongData bytes.
	OptionLongData

	// OptionAckAlong: SENDs of one packet and READs take an acknowledgement along.
	OptionAckAlong
)

// dataMTU is how many bytes of a WRITE, or of the answer to a READ, a packet carries at most.
func dataMTU(path verbs.MTU, options uint32) int {
	switch {
	case options&OptionLongData != 0:
		return wire.LongData
	case options&OptionJumboData != 0:
		return wire.JumboData
	}
	return path.Bytes()
}

// sendMTU is how many bytes of a SEND a packet carries at most.
func sendMTU(path verbs.MTU, options uint32) int {
	if options&OptionLongSend != 0 {
		return path.Bytes() + wire.LongSend
	}
	return path.Bytes()
}

// VendorOptions are what the device can do with any peer of its kind, if that can do it too: those
// whose packets its interface carries.
func (d *Device) VendorOptions() uint32 { return d.optionsWithin(d.attr.ActiveMTU, d.conn.MTU()) }

// VendorOptionsWithin are those among them whose packets a path carries that takes such of packet bytes.
func (d *Device) VendorOptionsWithin(packet int) uint32 {
	return d.optionsWithin(d.PathMTU(packet), packet) & d.VendorOptions()
}

// optionsWithin are those for packets of that length at most, of which the path MTU is the usual payload. Longer data is
// nothing for a device that is to have a smaller path MTU than there can be.
func (d *Device) optionsWithin(path verbs.MTU, packet int) (options uint32) {
	options = OptionAckAlong
	for _, more := range [...]uint32{OptionLongSend | OptionWriteSend, OptionJumboData, OptionLongData} {
		data := dataMTU(path, more)
		if data > wire.MaxPathMTU && d.attr.ActiveMTU.Bytes() < wire.MaxPathMTU {
			continue
		}
		if data+wire.LongSend+packetOverhead <= packet {
			options |= more
		}
	}
	return options
}

// agree has q do with its peer what a says that they have agreed on.
func (q *qp) agree(a *verbs.QPAttr) {
	q.attr.PeerVendorID, q.attr.VendorOptions = a.PeerVendorID, a.VendorOptions
	q.selective = a.PeerVendorID == vendorID
	options := a.VendorOptions
	if !q.selective {
		options = 0
	}
	q.noICRC = options&OptionNoICRC != 0
	q.writeSend = options&OptionWriteSend != 0
	q.ackAlong = options&OptionAckAlong != 0
	q.mtu, q.sendMTU = dataMTU(a.PathMTU, options), sendMTU(a.PathMTU, options)
	q.attr.EvenSends, q.attr.WriteSendMTU = q.selective, 0
	if q.writeSend {
		q.attr.WriteSendMTU = q.mtu
	}
}

// takes reports whether an opcode means something to q: all of the reliable connection, also those that are
// reserved, and of our own for requests those that were agreed on.
func (q *qp) takes(op wire.Opcode) bool {
	if op.IsRC() {
		return true
	}
	both, acks := op.Kind() == wire.KindWriteSend, op.Headers()&wire.HasAckPSN != 0
	return (both || acks) && (!both || q.writeSend) && (!acks || q.ackAlong)
}
