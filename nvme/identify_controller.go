package nvme

import (
	"fmt"
	"unsafe"
)

// IdentifyControllerSize is the size of the page in bytes.
const IdentifyControllerSize = PageSize

// IdentifyController is the Identify Controller data structure, CNS 01h (NVMe base, figure
// "Identify Controller Data Structure"). The layout of the struct is that of the page, and the
// field names are the specification's. Fields that are reserved, or that neither this project nor
// nvme-cli's output needs, are blank.
type IdentifyController struct {
	VID       uint16   // PCI vendor
	SSVID     uint16   // PCI subsystem vendor
	SN        [20]byte // serial number, padded with spaces (PutPadded)
	MN        [40]byte // model number, padded with spaces
	FR        [8]byte  // firmware revision, padded with spaces
	RAB       uint8    // recommended arbitration burst, 2^n commands
	IEEE      [3]byte  // OUI, little-endian
	CMIC      CMIC     // multi-path I/O and sharing
	MDTS      uint8    // maximum data transfer, 2^n × 4096 bytes; 0 is no limit
	CNTLID    uint16   // controller ID, as in the result of Connect
	VER       Version
	RTD3R     uint32 // resume latency, µs
	RTD3E     uint32 // entry latency, µs: how long a shutdown may take
	OAES      OAES   // asynchronous events the controller can send
	CTRATT    CTRATT
	RRLS      uint16
	BPCAP     uint8
	_         [1]byte
	NSSL      uint32 // NVM subsystem shutdown latency, µs
	_         [2]byte
	PLSI      uint8
	CNTRLTYPE ControllerType
	FGUID     [16]byte // FRU globally unique identifier
	CRDT1     uint16   // command retry delay times, 100 ms
	CRDT2     uint16
	CRDT3     uint16
	CRCAP     uint8 // reachability: bit 0 supported
	_         [118]byte
	NVMSR     uint8
	VWCI      uint8
	MEC       uint8

	OACS      OACS  // optional admin commands
	ACL       uint8 // Abort limit, 0-based
	AERL      uint8 // Asynchronous Event Request limit, 0-based
	FRMW      uint8 // firmware slots: bit 0 slot 1 read-only, 3:1 number of slots
	LPA       LPA
	ELPE      uint8 // error log entries, 0-based
	NPSS      uint8 // power states, 0-based
	AVSCC     uint8
	APSTA     uint8
	WCTEMP    uint16 // warning temperature, K
	CCTEMP    uint16 // critical temperature, K
	MTFA      uint16
	HMPRE     uint32
	HMMIN     uint32
	TNVMCAP   Uint128 // total capacity, bytes
	UNVMCAP   Uint128 // unallocated capacity, bytes
	RPMBS     uint32
	EDSTT     uint16
	DSTO      uint8
	FWUG      uint8
	KAS       uint16 // keep alive granularity, 100 ms; 0 is no keep alive
	HCTMA     uint16
	MNTMT     uint16
	MXTMT     uint16
	SANICAP   uint32
	HMMINDS   uint32
	HMMAXD    uint16
	NSETIDMAX uint16
	ENDGIDMAX uint16
	ANATT     uint8 // ANA transition time, s
	ANACAP    uint8
	ANAGRPMAX uint32 // largest ANA group identifier
	NANAGRPID uint32 // number of ANA groups
	PELS      uint32
	DomainID  uint16
	KPIOC     uint8 // key per I/O: bit 0 supported
	_         [1]byte
	MPTFAWR   uint16 // maximum time for activating firmware without a reset, 100 ms
	_         [6]byte
	MEGCAP    Uint128
	TMPTHHA   uint8 // bits 2:0: the most that a temperature threshold's hysteresis can be, K
	_         [1]byte
	CQT       uint16 // time to end commands after the host was lost, ms; 0 is not reported
	_         [124]byte

	SQES    uint8  // SQ entry size: 3:0 required, 7:4 maximum, 2^n bytes; 66h
	CQES    uint8  // CQ entry size; 44h
	MAXCMD  uint16 // commands that a queue may have outstanding
	NN      uint32 // largest NSID
	ONCS    ONCS   // optional NVM commands
	FUSES   uint16
	FNA     uint8
	VWC     VWC
	AWUN    uint16 // atomic write unit, blocks, 0-based
	AWUPF   uint16 // the same on power failure
	ICSVSCC uint8
	NWPC    uint8  // namespace write protection: bit 0 supported
	ACWU    uint16 // atomic compare and write unit, blocks, 0-based
	CDFS    uint16
	SGLS    SGLS
	MNAN    uint32 // maximum number of allowed namespaces; 0 is NN
	MAXDNA  Uint128
	MAXCNA  uint32
	OAQD    uint32
	RHIRI   uint8  // recommended time between host-initiated refreshes, days
	HIRT    uint8  // how long one takes, minutes
	CMMRTD  uint16 // memory ranges that a controller can track
	NMMRTD  uint16 // those that the subsystem can
	MINMRTG uint8  // least granularity of these ranges
	MAXMRTG uint8  // greatest one
	TRATTR  uint8  // tracking: bit 0 changes of host memory, bit 1 changes of user data
	_       [1]byte
	MCUDMQ  uint16 // user data migration queues of the controller
	MNSUDMQ uint16 // those of the subsystem
	MCMR    uint16 // memory ranges of a controller data queue
	NMCMR   uint16 // those of all such queues of the subsystem
	MCDQPC  uint16 // PRPs in the list of a controller data queue
	_       [180]byte
	SUBNQN  [256]byte // NUL-terminated (PutText)
	_       [768]byte

	IOCCSZ uint32 // I/O command capsule size, 16 bytes; at least 4
	IORCSZ uint32 // I/O response capsule size, 16 bytes; at least 1
	ICDOFF uint16 // in-capsule data offset, 16 bytes
	FCATT  uint8  // bit 0: static controller model
	MSDBD  uint8  // SGL data block descriptors in a capsule
	OFCS   uint16 // optional Fabrics commands: bit 0 Disconnect
	DCTYPE uint8  // discovery controller type
	_      [241]byte

	PSD            [32]PowerState
	VendorSpecific [1024]byte
}

var _ [IdentifyControllerSize]byte = [unsafe.Sizeof(IdentifyController{})]byte{}

// AppendTo appends the page.
func (p *IdentifyController) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *IdentifyController) Parse(b []byte) error {
	return parsePage(b, p, IdentifyControllerSize, "Identify Controller")
}

// SerialNumber is SN without its padding.
func (p *IdentifyController) SerialNumber() string { return Text(p.SN[:]) }

// ModelNumber is MN without its padding.
func (p *IdentifyController) ModelNumber() string { return Text(p.MN[:]) }

// FirmwareRevision is FR without its padding.
func (p *IdentifyController) FirmwareRevision() string { return Text(p.FR[:]) }

// NQN is SUBNQN as a string.
func (p *IdentifyController) NQN() string { return Text(p.SUBNQN[:]) }

// MaxTransfer is MDTS in bytes; 0 is no limit.
func (p *IdentifyController) MaxTransfer() int {
	if p.MDTS == 0 || p.MDTS > 19 { // above 2^31 bytes: more than any SGL of ours describes
		return 0
	}
	return PageSize << p.MDTS
}

// InCapsule is how much data an I/O command capsule may carry, in bytes, as IOCCSZ says.
func (p *IdentifyController) InCapsule() int {
	const most = MaxKeyedLength/16 + CommandSize/16
	n := min(int64(p.IOCCSZ), most)
	return max(0, int(n)*16-CommandSize)
}

// CMIC is Controller Multi-Path I/O and Namespace Sharing Capabilities.
type CMIC uint8

// Bits of CMIC.
const (
	CMICMultiPort CMIC = 1 << 0
	CMICMultiCtrl CMIC = 1 << 1
	CMICSRIOV     CMIC = 1 << 2
	CMICANA       CMIC = 1 << 3
)

// OAES is Optional Asynchronous Events Supported; its bits are those of feature 0Bh.
type OAES = AsyncEventConfig

// CTRATT is Controller Attributes.
type CTRATT uint32

// Bits of CTRATT.
const (
	CTRATTHostID128 CTRATT = 1 << 0  // 128-bit host identifier
	CTRATTTBKAS     CTRATT = 1 << 6  // traffic based keep alive
	CTRATTELBAS     CTRATT = 1 << 15 // extended LBA formats
	CTRATTRHII      CTRATT = 1 << 18 // reservations need a host identifier other than zero
)

// ControllerType is CNTRLTYPE.
type ControllerType uint8

// Controller types.
const (
	ControllerUnreported ControllerType = 0
	ControllerIO         ControllerType = 1
	ControllerDiscovery  ControllerType = 2
	ControllerAdmin      ControllerType = 3
)

func (t ControllerType) String() string {
	switch t {
	case ControllerUnreported:
		return "not reported"
	case ControllerIO:
		return "I/O"
	case ControllerDiscovery:
		return "discovery"
	case ControllerAdmin:
		return "administrative"
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// OACS is Optional Admin Command Support.
type OACS uint16

// Bits of OACS.
const (
	OACSSecurity     OACS = 1 << 0
	OACSFormat       OACS = 1 << 1
	OACSFirmware     OACS = 1 << 2
	OACSNSManagement OACS = 1 << 3
	OACSSelfTest     OACS = 1 << 4
)

// LPA is Log Page Attributes.
type LPA uint8

// Bits of LPA.
const (
	LPASMARTPerNS   LPA = 1 << 0
	LPAEffects      LPA = 1 << 1
	LPAExtendedData LPA = 1 << 2 // NUMDU and a log page offset are honoured
	LPATelemetry    LPA = 1 << 3
	LPAPersistent   LPA = 1 << 4
	LPASupported    LPA = 1 << 5 // log pages 00h, 12h and 13h, and scopes in 05h
)

// ONCS is Optional NVM Command Support.
type ONCS uint16

// Bits of ONCS.
const (
	ONCSCompare            ONCS = 1 << 0
	ONCSWriteUncorrectable ONCS = 1 << 1
	ONCSDSM                ONCS = 1 << 2
	ONCSWriteZeroes        ONCS = 1 << 3
	ONCSSave               ONCS = 1 << 4
	ONCSReservations       ONCS = 1 << 5
	ONCSTimestamp          ONCS = 1 << 6
	ONCSVerify             ONCS = 1 << 7
	ONCSCopy               ONCS = 1 << 8
)

// VWC describes the volatile write cache.
type VWC uint8

// Fields of VWC.
const (
	VWCPresent  VWC = 1 << 0
	VWCFlushAll VWC = 3 << 1 // Flush with NSIDAll is supported
	VWCFlushOne VWC = 2 << 1 // Flush with NSIDAll is not supported
)

// SGLS is SGL Support.
type SGLS uint32

// Bits of SGLS.
const (
	SGLSSupported     SGLS = 1 << 0  // no alignment required
	SGLSDwordAligned  SGLS = 1 << 1  // supported, data aligned to 4 bytes
	SGLSKeyed         SGLS = 1 << 2  // keyed data block descriptors
	SGLSInCapsuleOffs SGLS = 1 << 20 // data block descriptors that point into the capsule
	SGLSTransport     SGLS = 1 << 21 // transport data block descriptors
)

// PowerState is a Power State Descriptor.
type PowerState struct {
	MP    uint16 // maximum power, 10 mW, or 0.1 mW if Flags bit 0 is set
	_     [1]byte
	Flags uint8  // bit 0 MXPS, bit 1 NOPS: non-operational
	ENLAT uint32 // entry latency, µs
	EXLAT uint32 // exit latency, µs
	RRT   uint8  // relative read throughput
	RRL   uint8
	RWT   uint8
	RWL   uint8
	IDLP  uint16
	IPS   uint8
	_     [1]byte
	ACTP  uint16
	APWS  uint8
	EPFRT uint8 // emergency power fail recovery time
	FQVT  uint8 // forced quiescence vault time
	EPFVT uint8 // emergency power fail vault time
	// The units of these times: bits 3:0 that of EPFRT, 7:4 that of FQVT.
	EPFRFQVTS uint8
	EPFVTS    uint8 // bits 3:0: that of EPFVT
	_         [4]byte
}

var _ [32]byte = [unsafe.Sizeof(PowerState{})]byte{}
