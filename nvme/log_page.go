package nvme

import "encoding/binary"

// LID is a log page identifier.
type LID uint8

// Log pages.
const (
	LogSupported         LID = 0x00 // SupportedLogs
	LogError             LID = 0x01 // ErrorEntry
	LogSMART             LID = 0x02 // SMARTLog
	LogFirmware          LID = 0x03 // FirmwareLog
	LogChangedNamespaces LID = 0x04 // ChangedNamespaces
	LogEffects           LID = 0x05 // EffectsLog
	LogSelfTest          LID = 0x06
	LogANA               LID = 0x0c // ANALog
	LogPersistent        LID = 0x0d // PersistentLogHeader, PersistentEvent
	LogFeatureEffects    LID = 0x12 // FeatureEffectsLog
	LogMIEffects         LID = 0x13
	LogDiscovery         LID = 0x70 // DiscoveryHeader, DiscoveryEntry
	LogReservation       LID = 0x80 // ReservationNotification
	LogSanitize          LID = 0x81 // SanitizeLog
)

func (l LID) String() string {
	switch l {
	case LogSupported:
		return "Supported Log Pages"
	case LogError:
		return "Error Information"
	case LogSMART:
		return "SMART / Health Information"
	case LogFirmware:
		return "Firmware Slot Information"
	case LogChangedNamespaces:
		return "Changed Attached Namespace List"
	case LogEffects:
		return "Commands Supported and Effects"
	case LogSelfTest:
		return "Device Self-test"
	case LogANA:
		return "Asymmetric Namespace Access"
	case LogPersistent:
		return "Persistent Event"
	case LogFeatureEffects:
		return "Feature Identifiers Supported and Effects"
	case LogMIEffects:
		return "NVMe-MI Commands Supported and Effects"
	case LogSanitize:
		return "Sanitize Status"
	case LogDiscovery:
		return "Discovery"
	case LogReservation:
		return "Reservation Notification"
	}
	return "log page " + hexadecimal(uint64(l))
}

// GetLogPage holds the parameters of Get Log Page.
type GetLogPage struct {
	LID    LID
	NSID   uint32 // usually NSIDAll or NSIDNone
	LSP    uint8  // log specific parameter, 7 bits (4 before NVMe 2.0)
	LSI    uint16 // log specific identifier, such as that of an endurance group
	RAE    bool   // retain the asynchronous event
	Length uint32 // bytes; a multiple of 4, not 0
	Offset uint64 // bytes; a multiple of 4
	CSI    CSI

	UUIDIndex uint8 // index in the UUID list, 7 bits, for vendor specific pages; 0 for none
}

// SetGetLogPage makes c a Get Log Page. The length is rounded up to dwords.
func (c *Command) SetGetLogPage(p GetLogPage) {
	c.start(OpGetLogPage, p.NSID)
	numd := (uint64(p.Length)+3)/4 - 1
	dw10 := uint32(p.LID) | uint32(p.LSP&0x7f)<<8 | uint32(numd&0xffff)<<16
	if p.RAE {
		dw10 |= 1 << 15
	}
	c.SetCDW(10, dw10)
	c.SetCDW(11, uint32(numd>>16)&0xffff|uint32(p.LSI)<<16)
	c.SetCDW64(12, p.Offset)
	c.SetCDW(14, uint32(p.CSI)<<24|uint32(p.UUIDIndex&0x7f))
}

// LID is the log page that Get Log Page asks for.
func (c *Command) LID() LID { return LID(c[offCDW10]) }

// LogLSP is the log specific parameter.
func (c *Command) LogLSP() uint8 { return c[41] & 0x7f }

// LogRAE is Retain Asynchronous Event.
func (c *Command) LogRAE() bool { return c[41]&0x80 != 0 }

// LogLength is NUMD in bytes, up to 2^34: NUMD is a 0-based count of dwords.
func (c *Command) LogLength() uint64 {
	l := uint64(binary.LittleEndian.Uint16(c[42:]))
	u := uint64(binary.LittleEndian.Uint16(c[44:]))
	return ((u<<16 | l) + 1) * 4
}

// LogOffset is LPO: in bytes or, with LogIndexed, in entries.
func (c *Command) LogOffset() uint64 { return c.CDW64(12) }

// LogIndexed is Offset Type: whether the offset is the index of an entry.
func (c *Command) LogIndexed() bool { return c[58]&0x80 != 0 }

// LogCSI is the command set that the page is asked for.
func (c *Command) LogCSI() CSI { return CSI(c[59]) }
