package nvme

import (
	"encoding/binary"
	"time"
)

// FID is a feature identifier.
type FID uint8

// Features (NVMe base, figure "Feature Identifiers").
const (
	FeatArbitration       FID = 0x01
	FeatPower             FID = 0x02
	FeatTempThreshold     FID = 0x04
	FeatErrorRecovery     FID = 0x05
	FeatVolatileWC        FID = 0x06
	FeatNumberOfQueues    FID = 0x07
	FeatInterruptCoalesce FID = 0x08
	FeatInterruptVector   FID = 0x09
	FeatWriteAtomicity    FID = 0x0a
	FeatAsyncEvent        FID = 0x0b
	FeatTimestamp         FID = 0x0e
	FeatKATO              FID = 0x0f
	FeatHostBehavior      FID = 0x16
	FeatSoftwareProgress  FID = 0x80
	FeatHostID            FID = 0x81
	FeatResvNotification  FID = 0x82
	FeatResvPersistence   FID = 0x83
	FeatWriteProtect      FID = 0x84
)

func (f FID) String() string {
	switch f {
	case FeatArbitration:
		return "Arbitration"
	case FeatPower:
		return "Power Management"
	case FeatTempThreshold:
		return "Temperature Threshold"
	case FeatErrorRecovery:
		return "Error Recovery"
	case FeatVolatileWC:
		return "Volatile Write Cache"
	case FeatNumberOfQueues:
		return "Number of Queues"
	case FeatInterruptCoalesce:
		return "Interrupt Coalescing"
	case FeatInterruptVector:
		return "Interrupt Vector Configuration"
	case FeatWriteAtomicity:
		return "Write Atomicity Normal"
	case FeatAsyncEvent:
		return "Asynchronous Event Configuration"
	case FeatTimestamp:
		return "Timestamp"
	case FeatKATO:
		return "Keep Alive Timer"
	case FeatHostBehavior:
		return "Host Behavior Support"
	case FeatSoftwareProgress:
		return "Software Progress Marker"
	case FeatHostID:
		return "Host Identifier"
	case FeatResvNotification:
		return "Reservation Notification Mask"
	case FeatResvPersistence:
		return "Reservation Persistence"
	case FeatWriteProtect:
		return "Namespace Write Protection Config"
	}
	return "feature " + hexadecimal(uint64(f))
}

// SEL says which value Get Features asks for.
type SEL uint8

// Values of SEL.
const (
	SELCurrent   SEL = 0
	SELDefault   SEL = 1
	SELSaved     SEL = 2
	SELSupported SEL = 3 // the result is the feature's capabilities: FeatureSaveable …
)

// Bits of the result of Get Features with SELSupported.
const (
	FeatureSaveable   = 1 << 0
	FeatureNamespace  = 1 << 1
	FeatureChangeable = 1 << 2
)

// SetGetFeatures makes c a Get Features; dw11 is specific to the feature.
func (c *Command) SetGetFeatures(f FID, sel SEL, nsid, dw11 uint32) {
	c.start(OpGetFeatures, nsid)
	c.SetCDW(10, uint32(f)|uint32(sel&7)<<8)
	c.SetCDW(11, dw11)
}

// SetSetFeatures makes c a Set Features; dw11 is specific to the feature.
func (c *Command) SetSetFeatures(f FID, save bool, nsid, dw11 uint32) {
	c.start(OpSetFeatures, nsid)
	dw10 := uint32(f)
	if save {
		dw10 |= 1 << 31
	}
	c.SetCDW(10, dw10)
	c.SetCDW(11, dw11)
}

// FID is the feature of Get Features and Set Features.
func (c *Command) FID() FID { return FID(c[offCDW10]) }

// FeatureSEL is SEL of Get Features.
func (c *Command) FeatureSEL() SEL { return SEL(c.CDW10() >> 8 & 7) }

// FeatureSave is SV of Set Features.
func (c *Command) FeatureSave() bool { return c.CDW10()>>31 != 0 }

// FeatureDataSize is the size of a feature's data in bytes; 0 for most features.
func FeatureDataSize(f FID, dw11 uint32) int {
	switch f {
	case FeatTimestamp:
		return TimestampSize
	case FeatHostBehavior:
		return HostBehaviorSize
	case FeatHostID:
		if dw11&HostIDExtended != 0 {
			return 16
		}
		return 8
	}
	return 0
}

// QueueCounts is dword 11 of Set Features and the result of feature 07h.
type QueueCounts uint32

// NewQueueCounts returns the value that requests, or grants, sq submission queues and cq
// completion queues, each 1 to 65535.
func NewQueueCounts(sq, cq int) QueueCounts {
	return QueueCounts(uint16(sq-1)) | QueueCounts(uint16(cq-1))<<16
}

// SQ is the number of I/O submission queues.
func (q QueueCounts) SQ() int { return int(uint16(q)) + 1 }

// CQ is the number of I/O completion queues.
func (q QueueCounts) CQ() int { return int(uint16(q>>16)) + 1 }

// HostIDExtended is EXHID, bit 0 of dword 11 of feature 81h: the identifier has 128 bits. On
// Fabrics it must be set.
const HostIDExtended = 1 << 0

// VolatileWCEnable is WCE, bit 0 of dword 11 of feature 06h.
const VolatileWCEnable = 1 << 0

// TimestampSize is the size of the data of feature 0Eh in bytes.
const TimestampSize = 8

// Timestamp is the data of feature 0Eh.
type Timestamp struct {
	Millis uint64 // since 1970-01-01 UTC, 48 bits
	Origin uint8  // in bits 3:1: 0 cleared by reset, 1 set by Set Features
	Synch  bool   // the controller may have stopped counting
}

// TimestampOf returns t as a host sets it.
func TimestampOf(t time.Time) Timestamp {
	return Timestamp{Millis: uint64(t.UnixMilli()) & (1<<48 - 1)}
}

// Time is the timestamp as a time.
func (t Timestamp) Time() time.Time { return time.UnixMilli(int64(t.Millis)) }

// AppendTo appends the 8 bytes.
func (t Timestamp) AppendTo(b []byte) []byte {
	v := t.Millis&(1<<48-1) | uint64(t.Origin&7)<<49
	if t.Synch {
		v |= 1 << 48
	}
	return binary.LittleEndian.AppendUint64(b, v)
}

// Parse reads the 8 bytes.
func (t *Timestamp) Parse(b []byte) error {
	if len(b) < TimestampSize {
		return shortError("Timestamp", len(b), TimestampSize)
	}
	v := binary.LittleEndian.Uint64(b)
	*t = Timestamp{Millis: v & (1<<48 - 1), Synch: v>>48&1 != 0, Origin: uint8(v >> 49 & 7)}
	return nil
}

// HostBehaviorSize is the size of the data of feature 16h in bytes.
const HostBehaviorSize = 512

// HostBehavior is the data of feature 16h.
type HostBehavior struct {
	ACRE   uint8 // 1: advanced command retry
	ETDAS  uint8
	LBAFEE uint8 // 1: extended LBA formats
}

// AppendTo appends the 512 bytes.
func (h HostBehavior) AppendTo(b []byte) []byte {
	return append(append(b, h.ACRE, h.ETDAS, h.LBAFEE), make([]byte, HostBehaviorSize-3)...)
}

// Parse reads the 512 bytes.
func (h *HostBehavior) Parse(b []byte) error {
	if len(b) < HostBehaviorSize {
		return shortError("Host Behavior Support", len(b), HostBehaviorSize)
	}
	*h = HostBehavior{ACRE: b[0], ETDAS: b[1], LBAFEE: b[2]}
	return nil
}
