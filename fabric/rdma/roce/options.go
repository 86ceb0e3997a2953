package roce

import (
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// vendorID is the vendor ID of this RNIC, a locally administered number, which anybody may choose (IEEE 802: the second
// bit of the first octet is set): "NVA".
const vendorID = 0x4e5641

// Bits of verbs.QPAttr.VendorOptions: what two devices of our kind may agree on in addition to sending again only what
// is lost, which they always do.
const (
	// OptionNoICRC: packets of a queue pair have no ICRC; the field is there and zero, and is not checked. It is only
	// for peers on this host, whose packets never leave its memory.
	OptionNoICRC = 1 << iota

	// OptionLongSend: a packet of a SEND carries wire.LongSend bytes more than the path MTU, so that a
	// command with a block of data is one packet, and many of them make a train of equal ones.
	OptionLongSend

	// OptionWriteSend: a WRITE of one packet carries a SEND of up to wire.LongSend bytes that follows it.
	OptionWriteSend

	// OptionJumboData: packets of WRITEs, and of answers to READs, carry wire.JumboData bytes,
	// whatever the path MTU.
	OptionJumboData

	// OptionLongData: the same packets carry wire.LongData bytes.
	OptionLongData

	// OptionAckAlong: SENDs of one packet and READs carry an acknowledgement.
	OptionAckAlong
)

// dataMTU returns how many bytes of a WRITE, or of the answer to a READ, a packet carries at most.
func dataMTU(path verbs.MTU, options uint32) int {
	switch {
	case options&OptionLongData != 0:
		return wire.LongData
	case options&OptionJumboData != 0:
		return wire.JumboData
	}
	return path.Bytes()
}

// sendMTU returns how many bytes of a SEND a packet carries at most.
func sendMTU(path verbs.MTU, options uint32) int {
	if options&OptionLongSend != 0 {
		return path.Bytes() + wire.LongSend
	}
	return path.Bytes()
}

// VendorOptions returns the options that the device can use with any peer of its kind that supports them too: those
// whose packets its interface carries.
func (d *Device) VendorOptions() uint32 { return optionsWithin(d.attr.ActiveMTU, d.conn.MTU()) }

// VendorOptionsWithin returns those of VendorOptions whose packets fit a path that carries packets of up to packet
// bytes.
func (d *Device) VendorOptionsWithin(packet int) uint32 {
	return optionsWithin(d.PathMTU(packet), packet) & d.VendorOptions()
}

// optionsWithin returns the options for packets of at most that length, whose usual payload is the path MTU.
func optionsWithin(path verbs.MTU, packet int) (options uint32) {
	options = OptionAckAlong
	for _, more := range [...]uint32{OptionLongSend | OptionWriteSend, OptionJumboData, OptionLongData} {
		if dataMTU(path, more)+wire.LongSend+packetOverhead <= packet {
			options |= more
		}
	}
	return options
}

// agree makes q use what a says that it has agreed on with its peer.
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

// takes reports whether q takes packets of an opcode: all opcodes of the reliable connection, including reserved ones,
// and our own opcodes, those for requests if they were agreed on.
func (q *qp) takes(op wire.Opcode) bool {
	switch {
	case op.IsRC():
		return true
	case op == wire.SelectiveAck:
		return q.selective
	}
	both, acks := op.Kind() == wire.KindWriteSend, op.Headers()&wire.HasAckPSN != 0
	return (both || acks) && (!both || q.writeSend) && (!acks || q.ackAlong)
}
