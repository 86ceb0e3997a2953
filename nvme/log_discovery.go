package nvme

import (
	"fmt"
	"strings"
	"unsafe"
)

// Sizes of the parts of the discovery log in bytes. Entry i is at DiscoveryEntrySize × (i+1).
const (
	DiscoveryHeaderSize = 1024
	DiscoveryEntrySize  = 1024
)

// DiscoveryHeader is the beginning of the Discovery log, 70h.
type DiscoveryHeader struct {
	GENCTR uint64 // generation: changes when, and only when, the log does
	NUMREC uint64 // number of entries
	RECFMT uint16 // 0
	_      [1006]byte
}

var _ [DiscoveryHeaderSize]byte = [unsafe.Sizeof(DiscoveryHeader{})]byte{}

// AppendTo appends the header.
func (p *DiscoveryHeader) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the header from b.
func (p *DiscoveryHeader) Parse(b []byte) error {
	return parsePage(b, p, DiscoveryHeaderSize, "Discovery log header")
}

// DiscoveryEntry is one entry of the Discovery log.
type DiscoveryEntry struct {
	TRTYPE  TransportType
	ADRFAM  AddressFamily
	SUBTYPE SubsystemType
	TREQ    TREQ
	PORTID  uint16
	CNTLID  uint16 // CNTLIDDynamic
	ASQSZ   uint16 // admin queue size, entries
	EFLAGS  EFLAGS
	_       [20]byte
	TRSVCID [32]byte
	_       [192]byte
	SUBNQN  [256]byte
	TRADDR  [256]byte
	TSAS    [256]byte // transport specific: see TSASRDMA and TSASTCP
}

var _ [DiscoveryEntrySize]byte = [unsafe.Sizeof(DiscoveryEntry{})]byte{}

// AppendTo appends the entry.
func (p *DiscoveryEntry) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads one entry from b.
func (p *DiscoveryEntry) Parse(b []byte) error {
	return parsePage(b, p, DiscoveryEntrySize, "Discovery log entry")
}

// Service is TRSVCID as text; for TCP and RDMA it is a port number.
func (p *DiscoveryEntry) Service() string { return Text(p.TRSVCID[:]) }

// Address is TRADDR as text.
func (p *DiscoveryEntry) Address() string { return Text(p.TRADDR[:]) }

// NQN is SUBNQN as text.
func (p *DiscoveryEntry) NQN() string { return Text(p.SUBNQN[:]) }

// AddressFamily is ADRFAM.
type AddressFamily uint8

// Address families.
const (
	FamilyIPv4 AddressFamily = 1
	FamilyIPv6 AddressFamily = 2
	FamilyIB   AddressFamily = 3
	FamilyFC   AddressFamily = 4
	FamilyLoop AddressFamily = 254
)

func (f AddressFamily) String() string {
	switch f {
	case FamilyIPv4:
		return "ipv4"
	case FamilyIPv6:
		return "ipv6"
	case FamilyIB:
		return "infiniband"
	case FamilyFC:
		return "fibre-channel"
	case FamilyLoop:
		return "loop"
	}
	return fmt.Sprintf("family %d", uint8(f))
}

// SubsystemType is SUBTYPE.
type SubsystemType uint8

// Subsystem types.
const (
	SubsystemReferral         SubsystemType = 1 // another discovery subsystem
	SubsystemNVM              SubsystemType = 2
	SubsystemCurrentDiscovery SubsystemType = 3 // the discovery subsystem that returned the log
)

// String returns the name that nvme-cli uses.
func (t SubsystemType) String() string {
	switch t {
	case SubsystemReferral:
		return "discovery subsystem referral"
	case SubsystemNVM:
		return "nvme subsystem"
	case SubsystemCurrentDiscovery:
		return "current discovery subsystem"
	}
	return fmt.Sprintf("subsystem type %d", uint8(t))
}

// TREQ is Transport Requirements.
type TREQ uint8

// Fields of TREQ.
const (
	TREQSecureMask        TREQ = 3
	TREQSecureUnspecified TREQ = 0
	TREQSecureRequired    TREQ = 1
	TREQSecureNotRequired TREQ = 2
	TREQNoSQFlowControl   TREQ = 1 << 2 // the host may disable SQ flow control
)

// String returns the text that nvme-cli uses.
func (t TREQ) String() string {
	s := "not specified"
	switch t & TREQSecureMask {
	case TREQSecureRequired:
		s = "required"
	case TREQSecureNotRequired:
		s = "not required"
	}
	if t&TREQNoSQFlowControl != 0 {
		s += ", sq flow control disable supported"
	}
	return s
}

// EFLAGS is Entry Flags.
type EFLAGS uint16

// Bits of EFLAGS.
const (
	EFLAGSDuplicate  EFLAGS = 1 << 0 // DUPRETINFO
	EFLAGSPersistent EFLAGS = 1 << 1 // EPCSD: explicit persistent connections
	EFLAGSNoCDC      EFLAGS = 1 << 2 // NCC
)

// String returns the text that nvme-cli uses.
func (f EFLAGS) String() string {
	var set []string
	for _, b := range []struct {
		bit  EFLAGS
		text string
	}{
		{EFLAGSPersistent, "explicit discovery connections"},
		{EFLAGSDuplicate, "duplicate discovery information"},
		{EFLAGSNoCDC, "no cdc connectivity"},
	} {
		if f&b.bit != 0 {
			set = append(set, b.text)
		}
	}
	if set == nil {
		return "none"
	}
	return strings.Join(set, ", ")
}

// TSASRDMA is the transport specific address subtype of RDMA.
type TSASRDMA struct {
	QPType   uint8  // 1 connected, 2 datagram
	Provider uint8  // 1 none, 2 InfiniBand, 3 RoCE, 4 RoCEv2, 5 iWARP
	CMS      uint8  // 1 RDMA-CM
	PKey     uint16 // InfiniBand only
}

// Values of TSASRDMA.
const (
	RDMAQPConnected uint8 = 1
	RDMAQPDatagram  uint8 = 2

	RDMAProviderNone  uint8 = 1
	RDMAProviderIB    uint8 = 2
	RDMAProviderRoCE  uint8 = 3
	RDMAProviderRoCE2 uint8 = 4
	RDMAProviderIWARP uint8 = 5

	RDMACMS uint8 = 1
)

// Bytes returns the subtype in its wire form, the value of TSAS.
func (t TSASRDMA) Bytes() (b [256]byte) {
	b[0], b[1], b[2] = t.QPType, t.Provider, t.CMS
	b[8], b[9] = byte(t.PKey), byte(t.PKey>>8)
	return b
}

// RDMA reads TSAS of an entry whose TRTYPE is TransportRDMA.
func (p *DiscoveryEntry) RDMA() TSASRDMA {
	b := &p.TSAS
	return TSASRDMA{QPType: b[0], Provider: b[1], CMS: b[2], PKey: uint16(b[8]) | uint16(b[9])<<8}
}

// TCPSecurity is SECTYPE, the first byte of TSAS for TCP.
type TCPSecurity uint8

// Security types.
const (
	TCPSecurityNone  TCPSecurity = 0
	TCPSecurityTLS12 TCPSecurity = 1 // obsolete
	TCPSecurityTLS13 TCPSecurity = 2
)

func (t TCPSecurity) String() string {
	switch t {
	case TCPSecurityNone:
		return "none"
	case TCPSecurityTLS12:
		return "tls"
	case TCPSecurityTLS13:
		return "tls13"
	}
	return fmt.Sprintf("security type %d", uint8(t))
}

// TCP reads TSAS of an entry whose TRTYPE is TransportTCP.
func (p *DiscoveryEntry) TCP() TCPSecurity { return TCPSecurity(p.TSAS[0]) }
