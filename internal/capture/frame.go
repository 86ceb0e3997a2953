package capture

import (
	"encoding/binary"
	"net/netip"
)

// Header sizes and numbers.
const (
	ipv4Size = 20
	udpSize  = 8
	tcpSize  = 20

	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	protoTCP      = 6
	protoUDP      = 17

	dontFragment = 0x4000
	hopLimit     = 64
)

// flow is what all frames of one direction share.
type flow struct {
	src, dst netip.AddrPort
	class    uint8
}

// v6 reports whether frames are of IPv6, which has a form for addresses of IPv4, too.
func (f *flow) v6() bool { return f.src.Addr().Is6() || f.dst.Addr().Is6() }

// appendIP appends the Ethernet and IP headers of a packet with n bytes after the IP header. An
// IPv4 packet has the Identification id and DF.
func (f *flow) appendIP(b []byte, proto uint8, n int, id uint16) []byte {
	b = appendMAC(b, f.dst.Addr())
	b = appendMAC(b, f.src.Addr())
	if f.v6() {
		src, dst := f.src.Addr().As16(), f.dst.Addr().As16()
		b = binary.BigEndian.AppendUint16(b, etherTypeIPv6)
		b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(f.class)<<20)
		b = binary.BigEndian.AppendUint16(b, uint16(n))
		b = append(b, proto, hopLimit)
		b = append(b, src[:]...)
		return append(b, dst[:]...)
	}
	src, dst := f.src.Addr().As4(), f.dst.Addr().As4()
	b = binary.BigEndian.AppendUint16(b, etherTypeIPv4)
	start := len(b)
	b = append(b, 0x45, f.class)
	b = binary.BigEndian.AppendUint16(b, uint16(ipv4Size+n))
	b = binary.BigEndian.AppendUint16(b, id)
	b = binary.BigEndian.AppendUint16(b, dontFragment)
	b = append(b, hopLimit, proto, 0, 0)
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	binary.BigEndian.PutUint16(b[start+10:], ^fold(sum(0, b[start:])))
	return b
}

// appendMAC appends a locally administered address made of the last four bytes of a.
func appendMAC(b []byte, a netip.Addr) []byte {
	ip := a.As16()
	return append(append(b, 0x02, 0x00), ip[12:]...)
}

// appendUDP appends the frame of a datagram.
func (f *flow) appendUDP(b []byte, id uint16, payload []byte) []byte {
	n := udpSize + len(payload)
	b = f.appendIP(b, protoUDP, n, id)
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, f.src.Port())
	b = binary.BigEndian.AppendUint16(b, f.dst.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	b = append(b, 0, 0)
	b = append(b, payload...)
	if f.v6() {
		c := f.checksum(protoUDP, b[start:])
		if c == 0 {
			c = 0xffff // 0 would mean "none" (RFC 768)
		}
		binary.BigEndian.PutUint16(b[start+6:], c)
	}
	return b
}

// TCP flags.
const (
	tcpFIN = 0x01
	tcpSYN = 0x02
	tcpPSH = 0x08
	tcpACK = 0x10
)

// appendTCP appends the frame of a segment.
func (f *flow) appendTCP(b []byte, id uint16, flags uint8, seq, ack uint32, payload []byte) []byte {
	b = f.appendIP(b, protoTCP, tcpSize+len(payload), id)
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, f.src.Port())
	b = binary.BigEndian.AppendUint16(b, f.dst.Port())
	b = binary.BigEndian.AppendUint32(b, seq)
	b = binary.BigEndian.AppendUint32(b, ack)
	b = append(b, tcpSize/4<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	b = append(b, payload...)
	binary.BigEndian.PutUint16(b[start+16:], f.checksum(protoTCP, b[start:]))
	return b
}

// checksum computes the checksum of UDP and TCP: over the pseudo header and the segment (RFC
// 9293 3.1, RFC 8200 8.1).
func (f *flow) checksum(proto uint8, segment []byte) uint16 {
	s := uint64(proto) + uint64(len(segment))
	for _, a := range []netip.Addr{f.src.Addr(), f.dst.Addr()} {
		if a.Is4() {
			ip := a.As4()
			s = sum(s, ip[:])
		} else {
			ip := a.As16()
			s = sum(s, ip[:])
		}
	}
	return ^fold(sum(s, segment))
}

// sum adds b to s in 16-bit words.
func sum(s uint64, b []byte) uint64 {
	for ; len(b) >= 4; b = b[4:] {
		s += uint64(binary.BigEndian.Uint32(b))
	}
	if len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

// fold folds a sum into 16 bits, in ones' complement.
func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
