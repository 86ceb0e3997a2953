package wire

import (
	"encoding/binary"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/internal/prefetch"
)

// Lengths and offsets of what the ICRC covers before the BTH (annex A17.3.3): eight bytes of ones in place of an LRH,
// then the IP and UDP headers, in which the fields that routers change, or that depend on the ICRC, are set to ones.
const (
	lrhSize  = 8
	udpSize  = 8
	ipv4Size = 20
	ipv6Size = 40

	prefixV4 = ipv4Size + udpSize
	prefixV6 = ipv6Size + udpSize

	offV4TotalLength = 2
	offV4ID          = 4
	offV6Length      = 4
)

// flagDF is "don't fragment" in the upper byte of the IPv4 flags and fragment offset.
const flagDF = 0x40

// prefixTable[v] is the contribution of byte v to the state after the prefix.
type prefixTable [256]uint32

func makePrefixTable(bytesAfter int) (t prefixTable) {
	for v := range t {
		t[v] = crcZeros(crcTables[0][v], bytesAfter)
	}
	return t
}

// Contributions of the fields that differ between the packets of a flow, by byte.
var (
	v4LengthHi = makePrefixTable(prefixV4 - offV4TotalLength - 1)
	v4LengthLo = makePrefixTable(prefixV4 - offV4TotalLength - 2)
	v4IDHi     = makePrefixTable(prefixV4 - offV4ID - 1)
	v4IDLo     = makePrefixTable(prefixV4 - offV4ID - 2)
	v6LengthHi = makePrefixTable(prefixV6 - offV6Length - 1)
	v6LengthLo = makePrefixTable(prefixV6 - offV6Length - 2)
)

// Flow computes ICRCs of the packets between two UDP endpoints. It is a small value, cheap to
// make and to copy, and safe for concurrent use.
type Flow struct {
	state uint32 // after the prefix with both lengths and the Identification zero
	v6    bool
}

// NewFlow prepares the ICRCs of packets from src to dst, which must be of the same family; IPv4 addresses mapped into
// IPv6 count as IPv4. Over IPv4 the packets have DF set, as those of every known sender do.
func NewFlow(src, dst netip.AddrPort) Flow {
	var b [lrhSize + prefixV6]byte
	p := b[:lrhSize]
	for i := range p {
		p[i] = 0xff
	}
	from, to := src.Addr().Unmap(), dst.Addr().Unmap()
	v6 := from.Is6()
	if v6 {
		s, d := from.As16(), to.As16()
		p = append(p, 0x6f, 0xff, 0xff, 0xff, 0, 0, protoUDP, 0xff)
		p = append(p, s[:]...)
		p = append(p, d[:]...)
	} else {
		s, d := as4(from), as4(to)
		p = append(p, 0x45, 0xff, 0, 0, 0, 0, flagDF, 0, 0xff, protoUDP, 0xff, 0xff)
		p = append(p, s[:]...)
		p = append(p, d[:]...)
	}
	p = binary.BigEndian.AppendUint16(p, src.Port())
	p = binary.BigEndian.AppendUint16(p, dst.Port())
	p = append(p, 0, 0, 0xff, 0xff)
	return Flow{state: crcShort(^uint32(0), p), v6: v6}
}

const protoUDP = 17

// as4 is Addr.As4 for any address: it returns the zero address if a is not IPv4.
func as4(a netip.Addr) [4]byte {
	if !a.Is4() {
		return [4]byte{}
	}
	return a.As4()
}

// prefix returns the state after the prefix of a packet whose UDP payload is n bytes long.
func (f Flow) prefix(n int, id uint16) uint32 {
	udp := uint16(n + udpSize)
	state := f.state ^ crcTables[3][udp>>8] ^ crcTables[2][byte(udp)]
	if f.v6 {
		return state ^ v6LengthHi[udp>>8] ^ v6LengthLo[byte(udp)]
	}
	total := udp + ipv4Size
	return state ^ v4LengthHi[total>>8] ^ v4LengthLo[byte(total)] ^ v4IDHi[id>>8] ^ v4IDLo[byte(id)]
}

// ICRC computes the invariant CRC of a packet: header is the BTH and extension headers, payload the data in any number
// of pieces; the pad is implied. header may also include what follows it, the data with its pad. Over IPv4, id is the
// Identification that the packet will have. PutICRC and AppendTrailer write the result.
func (f Flow) ICRC(id uint16, header []byte, payload ...[]byte) uint32 {
	return f.ICRCFetching(nil, id, header, payload...)
}

// ICRCFetching is ICRC, but meanwhile the processor prefetches next, the data to be summed soon, up to the length of
// the packet.
func (f Flow) ICRCFetching(next []byte, id uint16, header []byte, payload ...[]byte) uint32 {
	fetch(next)
	n := 0
	for _, p := range payload {
		n += len(p)
	}
	pad := Pad(n)
	state := f.prefix(len(header)+n+pad+ICRCSize, id)
	state = crcPacket(state, header, next)
	for _, p := range payload {
		state = crcUpdate(state, p, next)
		next = next[min(len(p), len(next)):]
	}
	return ^crcZeros(state, pad)
}

// Put writes a packet with its ICRC to to, which is as long as the packet, in memory that another processor reads next.
// header, payload and id are as in ICRC. If the processor does that well, long payloads are read once, both to sum and
// to copy them, and written past its caches: call Fence before telling anybody about them. Meanwhile the processor
// prefetches next, which is to be written soon.
func (f Flow) Put(to, next []byte, id uint16, header []byte, payload ...[]byte) {
	fetch(next)
	switch {
	case canStream: // the packet's last line, in which the next packet begins, isn't written whole
		prefetch.ForWrite(to[len(to)-1 : min(len(to)+line, cap(to))])
	case len(to) >= longPacket:
		prefetch.ForWrite(to[len(to):cap(to)])
	}
	state := crcPacket(f.prefix(len(to), id), header, next)
	at := copy(to, header)
	for _, p := range payload {
		state = crcCopy(state, to[at:at+len(p)], p, next)
		next = next[min(len(p), len(next)):]
		at += len(p)
	}
	pad := len(to) - ICRCSize - at
	clear(to[at : at+pad])
	PutICRC(to[at+pad:], ^crcZeros(state, pad))
}

const line = 64

// longPacket is the length from which copying a packet takes long enough for the next one's place to be fetched
// meanwhile.
const longPacket = 1 << 10

// fetch makes the processor prefetch next now if that can't be done while a sum is computed.
func fetch(next []byte) {
	if !hasFold {
		prefetch.Whole(next)
	}
}

// PutICRC writes the ICRC to the last four bytes of a packet: it is the only little-endian field.
func PutICRC(b []byte, icrc uint32) { binary.LittleEndian.PutUint32(b, icrc) }

// AppendTrailer appends what follows a payload of n bytes: the pad and the ICRC.
func AppendTrailer(b []byte, n int, icrc uint32) []byte {
	var pad [MaxPad]byte
	b = append(b, pad[:Pad(n)]...)
	return binary.LittleEndian.AppendUint32(b, icrc)
}

// Verdict is the result of Verify.
type Verdict uint8

// Verdicts.
const (
	Bad       Verdict = iota // the packet is not what was sent
	Exact                    // the ICRC is right with the expected Identification
	Recovered                // the ICRC is right with another Identification, which is now known
)

// Verify checks the ICRC of the UDP payload p.
//
// A socket doesn't show the IPv4 Identification. expected is a guess at it: for a train of datagrams that were received
// as one, a sender like ours uses the index in the train. If the ICRC isn't right with that, Verify solves for the
// Identification and returns it with Recovered, except for packets with more data than jumbo frames hold; see the
// package documentation for what this leaves of the ICRC's strength.
func (f Flow) Verify(p []byte, expected uint16) (Verdict, uint16) {
	return f.VerifyFetching(nil, p, expected)
}

// VerifyFetching is Verify, but meanwhile the processor prefetches next, the data to be checked after p, up to the
// length of p.
func (f Flow) VerifyFetching(next, p []byte, expected uint16) (Verdict, uint16) {
	if len(p) < MinPacket || len(p) > MaxPacket || len(p)&3 != 0 {
		return Bad, expected
	}
	fetch(next)
	end := len(p) - ICRCSize
	state := crcPacket(f.prefix(len(p), expected), p[:end], next)
	syndrome := ^state ^ binary.LittleEndian.Uint32(p[end:])
	if syndrome == 0 {
		return Exact, expected
	}
	if f.v6 || len(p) > maxSolved {
		return Bad, expected
	}
	delta, ok := shiftOf(len(p)).solve(syndrome)
	if !ok {
		return Bad, expected
	}
	return Recovered, expected ^ delta
}
