package mad

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Sizes of the RDMA-CM part of a REQ's private data, in bytes.
const (
	PrivateHeaderSize = 36
	ULPPrivateSize    = REQPrivateSize - PrivateHeaderSize // what is left for the consumer
)

// portSpaceTCP is the prefix of the service IDs of RDMA_PS_TCP; the low 16 bits are the port.
const portSpaceTCP = 0x0000000001060000

// ServiceID returns the service ID of a port in the port space RDMA_PS_TCP.
func ServiceID(port uint16) uint64 { return portSpaceTCP | uint64(port) }

// ServicePort returns the port of a service ID; false outside RDMA_PS_TCP.
func ServicePort(id uint64) (uint16, bool) {
	return uint16(id), id&^0xffff == portSpaceTCP
}

// ErrPrivateHeader says that the private data of a REQ doesn't begin with an RDMA-CM header.
var ErrPrivateHeader = errors.New("bad RDMA-CM private header")

// PrivateHeader is the RDMA-CM header, the first PrivateHeaderSize bytes of the private data of
// a REQ (IBTA annex A11). An IPv4 address fills the last 4 of 16 bytes behind zeros: it is not
// mapped as in a GID.
//
//	0 CMA version  1 IP version (high nibble)  2 source port  4 source address
//	20 destination address
type PrivateHeader struct {
	SourcePort  uint16
	Source      netip.Addr
	Destination netip.Addr
}

// Bytes returns the encoded header. Both addresses must be of one family.
func (h PrivateHeader) Bytes() []byte {
	version := byte(0x60)
	if h.Source.Is4() {
		version = 0x40
	}
	b := append(make([]byte, 0, PrivateHeaderSize), 0, version)
	b = binary.BigEndian.AppendUint16(b, h.SourcePort)
	b = appendPrivateAddr(b, h.Source)
	return appendPrivateAddr(b, h.Destination)
}

func appendPrivateAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		b = append(b, make([]byte, 12)...)
	}
	return append(b, a.WithZone("").AsSlice()...)
}

// ParsePrivateHeader decodes the header at the start of b. An error is an ErrPrivateHeader that names the field.
func ParsePrivateHeader(b []byte) (PrivateHeader, error) {
	var h PrivateHeader
	if len(b) < PrivateHeaderSize {
		return h, fmt.Errorf("%w: %d bytes, want %d", ErrPrivateHeader, len(b), PrivateHeaderSize)
	}
	if b[0] != 0 {
		return h, fmt.Errorf("%w: CMA version %#02x, want 0", ErrPrivateHeader, b[0])
	}
	version := b[1] >> 4
	if version != 4 && version != 6 {
		return h, fmt.Errorf("%w: IP version %d, want 4 or 6", ErrPrivateHeader, version)
	}
	h.SourcePort = binary.BigEndian.Uint16(b[2:])
	h.Source = parsePrivateAddr(b[4:20], version)
	h.Destination = parsePrivateAddr(b[20:36], version)
	return h, nil
}

// parsePrivateAddr ignores the 12 bytes before an IPv4 address, as Linux does.
func parsePrivateAddr(b []byte, version byte) netip.Addr {
	if version == 4 {
		return netip.AddrFrom4([4]byte(b[12:16]))
	}
	return netip.AddrFrom16([16]byte(b))
}
