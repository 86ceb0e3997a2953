package capture

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// add returns the ones' complement sum of b in 16-bit words, padded with a zero byte, as RFC 1071 defines it.
func add(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		word := uint32(b[i]) << 8
		if i+1 < len(b) {
			word |= uint32(b[i+1])
		}
		s += word
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// pseudo returns the pseudo header of a packet (RFC 9293 3.1, RFC 8200 8.1).
func pseudo(f *flow, proto uint8, n int) []byte {
	b := append(f.src.Addr().AsSlice(), f.dst.Addr().AsSlice()...)
	if f.v6() {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
		return append(b, 0, 0, 0, proto)
	}
	return binary.BigEndian.AppendUint16(append(b, 0, proto), uint16(n))
}

// TestChecksums: whatever the length of a payload, its packet's checksums are right, so that Wireshark has nothing to
// say against them. 0 stands for none.
func TestChecksums(t *testing.T) {
	const ethernet, ipv6Size = 14, 40
	four := flow{src: netip.MustParseAddrPort("192.0.2.1:4420"), dst: netip.MustParseAddrPort("198.51.100.2:50001")}
	six := flow{src: netip.MustParseAddrPort("[2001:db8::1]:4791"), dst: netip.MustParseAddrPort("[2001:db8::2:3]:4791"), class: 0xb8}
	for n := range 10 {
		payload := make([]byte, n)
		for i := range payload {
			payload[i] = byte(0x9c + 37*i)
		}
		for _, f := range []*flow{&four, &six} {
			ip := f.appendTCP(nil, 7, tcpACK, 1<<31+5, 99, payload)[ethernet:]
			segment := ip[ipv6Size:]
			if !f.v6() {
				if s := add(ip[:ipv4Size]); s != 0xffff {
					t.Errorf("the header of an IPv4 packet adds up to %#x", s)
				}
				segment = ip[ipv4Size:]
			}
			if s := add(append(pseudo(f, protoTCP, len(segment)), segment...)); s != 0xffff {
				t.Errorf("%d bytes from %v over TCP: the segment adds up to %#x", n, f.src, s)
			}
		}
		datagram := six.appendUDP(nil, 0, payload)[ethernet+ipv6Size:]
		if s := add(append(pseudo(&six, protoUDP, len(datagram)), datagram...)); s != 0xffff {
			t.Errorf("%d bytes over UDP: the datagram adds up to %#x", n, s)
		}
	}
	const checksumAt = ethernet + ipv6Size + 6
	for word := range 1 << 16 {
		frame := six.appendUDP(nil, 0, []byte{byte(word >> 8), byte(word)})
		if binary.BigEndian.Uint16(frame[checksumAt:]) == 0 {
			t.Fatalf("a UDP checksum of 0, with payload %#x", word)
		}
	}
}
