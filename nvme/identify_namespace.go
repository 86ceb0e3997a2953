package nvme

import "unsafe"

// IdentifyNamespaceSize is the size of the page in bytes.
const IdentifyNamespaceSize = PageSize

// IdentifyNamespace is the Identify Namespace data structure of the NVM command set, CNS 00h.
// All of it is zero for an NSID that is valid but not active.
type IdentifyNamespace struct {
	NSZE     uint64 // size, blocks
	NCAP     uint64 // capacity, blocks; 0 for an inactive namespace
	NUSE     uint64 // blocks in use
	NSFEAT   NSFEAT
	NLBAF    uint8 // LBA formats of common attributes, 0-based
	FLBAS    uint8 // format in use: bits 3:0, and 6:5 as its upper bits
	MC       uint8
	DPC      uint8
	DPS      uint8
	NMIC     NMIC
	RESCAP   RESCAP // reservation capabilities
	FPI      uint8  // format progress
	DLFEAT   DLFEAT
	NAWUN    uint16 // atomic write unit, blocks, 0-based
	NAWUPF   uint16
	NACWU    uint16
	NABSN    uint16
	NABO     uint16
	NABSPF   uint16
	NOIOB    uint16 // optimal I/O boundary, blocks
	NVMCAP   Uint128
	NPWG     uint16 // preferred write granularity, blocks, 0-based; valid with NSFEATOptPerf or NSFEATOptPerfLarge
	NPWA     uint16 // preferred write alignment
	NPDG     uint16 // preferred deallocate granularity
	NPDA     uint16 // preferred deallocate alignment
	NOWS     uint16 // optimal write size
	MSSRL    uint16
	MCL      uint32
	MSRC     uint8
	KPIOS    uint8
	NULBAF   uint8 // further LBA formats, of unique attributes; not 0-based
	_        [1]byte
	KPIODAAG uint32 // granularity and alignment of commands with a key per I/O, blocks
	_        [4]byte
	ANAGRPID uint32
	_        [3]byte
	NSATTR   NSATTR
	NVMSETID uint16
	ENDGID   uint16
	NGUID    [16]byte // big-endian
	EUI64    [8]byte  // big-endian
	LBAF     [64]LBAFormat

	VendorSpecific [3712]byte
}

var _ [IdentifyNamespaceSize]byte = [unsafe.Sizeof(IdentifyNamespace{})]byte{}

// LBAFormat is one LBA Format data structure.
type LBAFormat struct {
	MS    uint16 // metadata per block, bytes
	LBADS uint8  // block size, 2^n bytes; 0 if the format doesn't exist
	RP    uint8  // relative performance, bits 1:0; 0 is best
}

var _ [4]byte = [unsafe.Sizeof(LBAFormat{})]byte{}

// BlockSize is the size of a logical block in bytes, without metadata; 0 if the NVM command set
// doesn't allow the format (below 512 bytes or absurdly large).
func (f LBAFormat) BlockSize() int {
	if f.LBADS < 9 || f.LBADS > 24 {
		return 0
	}
	return 1 << f.LBADS
}

// AppendTo appends the page.
func (p *IdentifyNamespace) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *IdentifyNamespace) Parse(b []byte) error {
	return parsePage(b, p, IdentifyNamespaceSize, "Identify Namespace")
}

// Formats returns the LBA formats, including those of unique attributes (NVM command set 1.1, section 5.5).
func (p *IdentifyNamespace) Formats() []LBAFormat {
	return p.LBAF[:min(int(p.NLBAF)+1+int(p.NULBAF), len(p.LBAF))]
}

// Format is the index of the LBA format in use.
func (p *IdentifyNamespace) Format() int {
	i := int(p.FLBAS & 0xf)
	if len(p.Formats()) > 16 {
		i |= int(p.FLBAS>>5&3) << 4
	}
	return i
}

// BlockSize is the size of a logical block in bytes, without metadata; 0 if the NVM command set
// doesn't allow the format.
func (p *IdentifyNamespace) BlockSize() int { return p.LBAF[p.Format()].BlockSize() }

// MetadataSize is the metadata of a logical block in bytes.
func (p *IdentifyNamespace) MetadataSize() int { return int(p.LBAF[p.Format()].MS) }

// NSFEAT is Namespace Features.
type NSFEAT uint8

// Bits of NSFEAT.
const (
	NSFEATThin         NSFEAT = 1 << 0 // NUSE may be less than NSZE
	NSFEATAtomic       NSFEAT = 1 << 1 // NAWUN, NAWUPF and NACWU are defined
	NSFEATDeallocErr   NSFEAT = 1 << 2
	NSFEATUIDReuse     NSFEAT = 1 << 3
	NSFEATOptPerf      NSFEAT = 1 << 4 // NPWG, NPWA, NPDG, NPDA and NOWS are defined
	NSFEATOptPerfLarge NSFEAT = 1 << 5 // NPWG, NPWA, NPDGL, NPDA and NOWS are defined
)

// NMIC is Namespace Multi-path I/O and Sharing Capabilities.
type NMIC uint8

// NMICShared says that the namespace may be attached to several controllers at once.
const NMICShared NMIC = 1 << 0

// DLFEAT is Deallocate Logical Block Features.
type DLFEAT uint8

// Values of DLFEAT.
const (
	DLFEATReadZero    DLFEAT = 1      // bits 2:0: deallocated blocks read as 00h
	DLFEATReadOnes    DLFEAT = 2      // … as FFh
	DLFEATWriteZeroes DLFEAT = 1 << 3 // Write Zeroes with DEAC deallocates
)

// NSATTR is Namespace Attributes.
type NSATTR uint8

// NSATTRWriteProtected says that the namespace is write protected now.
const NSATTRWriteProtected NSATTR = 1 << 0
