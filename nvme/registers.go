package nvme

import (
	"fmt"
	"time"
)

// CAP is Controller Capabilities.
type CAP uint64

// Bits of CAP.
const (
	CAPCQR   CAP = 1 << 16 // contiguous queues required; 1 on Fabrics
	CAPNSSRS CAP = 1 << 36 // NVM subsystem reset supported
	CAPNVM   CAP = 1 << 37 // NVM command set
	CAPIOCS  CAP = 1 << 43 // one or more I/O command sets: CC.CSS may be CSSAll
	CAPNoIO  CAP = 1 << 44 // no I/O command set
	CAPCRWMS CAP = 1 << 59 // controller ready with media support
	CAPCRIMS CAP = 1 << 60 // controller ready independent of media support
)

// NewCAP returns a CAP with MQES for queues of queueSize entries, TO for timeout (rounded up to a
// multiple of 500 ms, at most 127.5 s), CQR, and the given bits.
func NewCAP(queueSize int, timeout time.Duration, bits CAP) CAP {
	to := min((timeout+500*time.Millisecond-1)/(500*time.Millisecond), 255)
	return CAP(uint16(queueSize-1)) | CAP(to)<<24 | CAPCQR | bits
}

// MQES is the largest queue size, in entries (the field is 0-based).
func (c CAP) MQES() int { return int(c&0xffff) + 1 }

// Timeout is TO: how long CSTS.RDY may take to follow CC.EN.
func (c CAP) Timeout() time.Duration { return time.Duration(c>>24&0xff) * 500 * time.Millisecond }

// MPSMIN is the smallest memory page size, 2^(12+n) bytes.
func (c CAP) MPSMIN() uint8 { return uint8(c >> 48 & 0xf) }

// CC is Controller Configuration.
type CC uint32

// Fields of CC.
const (
	CCEnable CC = 1 << 0

	CCCSSNVM  CC = 0 << 4 // command set: NVM
	CCCSSAll  CC = 6 << 4 // all supported I/O command sets
	CCCSSNone CC = 7 << 4 // admin only
	CCCSSMask CC = 7 << 4

	CCMPSMask CC = 0xf << 7
	CCAMSMask CC = 7 << 11

	CCSHNNone   CC = 0 << 14 // shutdown notification
	CCSHNNormal CC = 1 << 14
	CCSHNAbrupt CC = 2 << 14
	CCSHNMask   CC = 3 << 14

	CCIOSQES64   CC = 6 << 16 // entries of 64 bytes
	CCIOSQESMask CC = 0xf << 16
	CCIOCQES16   CC = 4 << 20 // entries of 16 bytes
	CCIOCQESMask CC = 0xf << 20
	CCCRIME      CC = 1 << 24
)

// CCFabrics holds the entry sizes that every Fabrics host sets.
const CCFabrics = CCIOSQES64 | CCIOCQES16

// Enabled is EN.
func (c CC) Enabled() bool { return c&CCEnable != 0 }

// Shutdown is SHN, to be compared with CCSHN….
func (c CC) Shutdown() CC { return c & CCSHNMask }

// IOSQES is the I/O SQ entry size, 2^n bytes.
func (c CC) IOSQES() uint8 { return uint8(c >> 16 & 0xf) }

// IOCQES is the I/O CQ entry size, 2^n bytes.
func (c CC) IOCQES() uint8 { return uint8(c >> 20 & 0xf) }

// CSTS is Controller Status.
type CSTS uint32

// Fields of CSTS.
const (
	CSTSReady CSTS = 1 << 0
	CSTSFatal CSTS = 1 << 1 // CFS

	CSTSShutdownNone     CSTS = 0 << 2 // SHST
	CSTSShutdownOccurs   CSTS = 1 << 2
	CSTSShutdownComplete CSTS = 2 << 2
	CSTSShutdownMask     CSTS = 3 << 2

	CSTSNSSRO  CSTS = 1 << 4
	CSTSPaused CSTS = 1 << 5
)

// CSTSGone is the value read if the controller is no longer there.
const CSTSGone CSTS = 0xffffffff

// Ready is RDY.
func (c CSTS) Ready() bool { return c&CSTSReady != 0 }

// Fatal is CFS: the controller can't continue and has to be reset.
func (c CSTS) Fatal() bool { return c&CSTSFatal != 0 }

// Shutdown is SHST, to be compared with CSTSShutdown….
func (c CSTS) Shutdown() CSTS { return c & CSTSShutdownMask }

// Version is VS and VER: major in bits 31:16, minor in 15:8, tertiary in 7:0.
type Version uint32

// Versions.
const (
	Version1_2_1 Version = 0x10201
	Version1_3   Version = 0x10300
	Version1_4   Version = 0x10400
	Version2_0   Version = 0x20000
)

// String returns the version as the specifications write it: 1.4, 1.2.1.
func (v Version) String() string {
	if t := v & 0xff; t != 0 {
		return fmt.Sprintf("%d.%d.%d", v>>16, v>>8&0xff, t)
	}
	return fmt.Sprintf("%d.%d", v>>16, v>>8&0xff)
}
