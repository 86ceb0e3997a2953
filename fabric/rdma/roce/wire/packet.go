package wire

// Sizes of a packet's parts.
const (
	Port       = 4791 // UDP destination port of RoCEv2
	ICRCSize   = 4
	MaxPathMTU = 4096 // the largest path MTU
	MaxPad     = 3

	// LongSend is how many bytes of a SEND a packet may carry beyond the path MTU between devices that have agreed on
	// it: a header of the consumer in addition to data as long as the path MTU.
	LongSend = 64
	// JumboData and LongData are how many bytes of a WRITE, or of a READ response, a packet carries between devices
	// that have agreed on it, and whose links have room for it: what fits into jumbo frames, and most of what fits into
	// a UDP datagram, in whole pages.
	JumboData = 8 << 10
	LongData  = 60 << 10
	// MaxPayload is the longest payload that devices can agree on.
	MaxPayload = LongData + LongSend

	// MaxHeader is the longest BTH with extension headers: that of an atomic.
	MaxHeader = BTHSize + AtomicETHSize
	// MaxTrailer is the longest pad with the ICRC.
	MaxTrailer = MaxPad + ICRCSize
	// MinPacket is the shortest packet: a SEND of no data.
	MinPacket = BTHSize + ICRCSize
	// MaxPacket is the longest UDP payload: the longest headers that go with a full payload are those of
	// WriteSendWithInvAck.
	MaxPacket = BTHSize + RETHSize + IETHSize + AckPSNSize + MaxPayload + ICRCSize
)

// Pad returns the number of zero bytes that follow a payload of n bytes.
func Pad(n int) int { return -n & 3 }

// Packet is a parsed packet. Only the extension headers in Opcode.Headers() are meaningful; Parse leaves the others
// unchanged, so that one Packet can be reused.
type Packet struct {
	BTH
	Payload      []byte // without pad; aliases the parsed bytes
	RETH         RETH
	AtomicETH    AtomicETH
	AtomicAckETH AtomicAckETH
	DETH         DETH
	AETH         AETH
	ImmDt        ImmDt
	IETH         IETH
	AckPSN       AckPSN
}

// Parse parses the UDP payload b, whose last four bytes are the ICRC (which Flow.Verify checks). The error is an Error.
// After ErrOpcode p.BTH is filled in: a responder has to answer a reserved opcode. For the same reason a READ request or
// an atomic with a payload is no error here.
func Parse(p *Packet, b []byte) error {
	if len(b) < MinPacket {
		return ErrShort
	}
	if err := ParseBTH(&p.BTH, b); err != nil {
		return err
	}
	info := &opTable[p.Opcode]
	if info.kind == KindUnknown {
		return ErrOpcode
	}
	if len(b)&3 != 0 {
		return ErrAlign
	}
	start, end := int(info.headerSize), len(b)-ICRCSize-int(p.PadCnt)
	switch size := end - start; {
	case size < 0:
		return ErrShort
	case size > MaxPayload:
		return ErrLong
	case info.flags&opEmpty != 0 && size != 0,
		info.fixed != 0 && size != int(info.fixed):
		return ErrPayloadSize
	}
	p.Payload = b[start:end:end]
	if info.headers != 0 {
		p.parseHeaders(info.headers, b[BTHSize:start])
	}
	return nil
}

// parseHeaders parses the extension headers in set from b, which is exactly as long as they are.
func (p *Packet) parseHeaders(set Headers, b []byte) {
	if set&HasDETH != 0 {
		_ = ParseDETH(&p.DETH, b)
		b = b[DETHSize:]
	}
	if set&HasRETH != 0 {
		_ = ParseRETH(&p.RETH, b)
		b = b[RETHSize:]
	}
	if set&HasAtomicETH != 0 {
		_ = ParseAtomicETH(&p.AtomicETH, b)
		b = b[AtomicETHSize:]
	}
	if set&HasAETH != 0 {
		_ = ParseAETH(&p.AETH, b)
		b = b[AETHSize:]
	}
	if set&HasAtomicAckETH != 0 {
		_ = ParseAtomicAckETH(&p.AtomicAckETH, b)
		b = b[AtomicAckETHSize:]
	}
	if set&HasImmDt != 0 {
		_ = ParseImmDt(&p.ImmDt, b)
		b = b[ImmDtSize:]
	}
	if set&HasIETH != 0 {
		_ = ParseIETH(&p.IETH, b)
		b = b[IETHSize:]
	}
	if set&HasAckPSN != 0 {
		_ = ParseAckPSN(&p.AckPSN, b)
	}
}

// AppendHeader appends the BTH and the extension headers of p.Opcode. It uses p.PadCnt, which the caller sets to Pad of
// the payload's length.
func (p *Packet) AppendHeader(b []byte) []byte {
	b = p.BTH.Append(b)
	set := opTable[p.Opcode].headers
	if set == 0 {
		return b
	}
	if set&HasDETH != 0 {
		b = p.DETH.Append(b)
	}
	if set&HasRETH != 0 {
		b = p.RETH.Append(b)
	}
	if set&HasAtomicETH != 0 {
		b = p.AtomicETH.Append(b)
	}
	if set&HasAETH != 0 {
		b = p.AETH.Append(b)
	}
	if set&HasAtomicAckETH != 0 {
		b = p.AtomicAckETH.Append(b)
	}
	if set&HasImmDt != 0 {
		b = p.ImmDt.Append(b)
	}
	if set&HasIETH != 0 {
		b = p.IETH.Append(b)
	}
	if set&HasAckPSN != 0 {
		b = p.AckPSN.Append(b)
	}
	return b
}

// Append appends the whole packet in one piece: headers, p.Payload, pad and ICRC for flow f and Identification id. It
// sets p.PadCnt. It is for packets that are small or rare; bulk data is gathered (AppendHeader, Flow.ICRC,
// AppendTrailer).
func (p *Packet) Append(b []byte, f Flow, id uint16) []byte {
	p.PadCnt = uint8(Pad(len(p.Payload)))
	start := len(b)
	b = p.AppendHeader(b)
	header := b[start:]
	b = append(b, p.Payload...)
	return AppendTrailer(b, len(p.Payload), f.ICRC(id, header, p.Payload))
}
