package nvme

import (
	"encoding/binary"
	"fmt"
)

// Reservation commands (NVMe base, section "Reservation Acquire command" and those that follow
// it). All are I/O commands.

// ResvType is the type of a reservation.
type ResvType uint8

// Types of reservations.
const (
	ResvNone                   ResvType = 0
	ResvWriteExclusive         ResvType = 1
	ResvExclusiveAccess        ResvType = 2
	ResvWriteExclusiveRegOnly  ResvType = 3
	ResvExclusiveAccessRegOnly ResvType = 4
	ResvWriteExclusiveAllReg   ResvType = 5
	ResvExclusiveAccessAllReg  ResvType = 6
)

func (t ResvType) String() string {
	names := [...]string{"none", "write exclusive", "exclusive access", "write exclusive, registrants only",
		"exclusive access, registrants only", "write exclusive, all registrants", "exclusive access, all registrants"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("reservation type %d", uint8(t))
}

// Valid reports whether a host can ask for a reservation of the type.
func (t ResvType) Valid() bool { return t >= ResvWriteExclusive && t <= ResvExclusiveAccessAllReg }

// AllRegistrants reports whether every registrant holds a reservation of the type.
func (t ResvType) AllRegistrants() bool {
	return t == ResvWriteExclusiveAllReg || t == ResvExclusiveAccessAllReg
}

// RegistrantsOnly reports whether every registrant may write though only one holds the reservation.
func (t ResvType) RegistrantsOnly() bool {
	return t == ResvWriteExclusiveRegOnly || t == ResvExclusiveAccessRegOnly
}

// ResvAction is RREGA, RACQA or RRELA: the action of a reservation command.
type ResvAction uint8

// Actions of Reservation Register, of Reservation Acquire and of Reservation Release.
const (
	ResvRegister   ResvAction = 0
	ResvUnregister ResvAction = 1
	ResvReplace    ResvAction = 2

	ResvAcquire         ResvAction = 0
	ResvPreempt         ResvAction = 1
	ResvPreemptAndAbort ResvAction = 2

	ResvRelease ResvAction = 0
	ResvClear   ResvAction = 1
)

// CPTPL is Change Persist Through Power Loss State of Reservation Register.
type CPTPL uint8

// Values of CPTPL.
const (
	CPTPLKeep  CPTPL = 0
	CPTPLClear CPTPL = 2
	CPTPLSet   CPTPL = 3
)

// Sizes of the data of reservation commands in bytes.
const (
	ResvKeysSize    = 16 // Register, Acquire
	ResvReleaseSize = 8
)

// Bits of dwords 10 and 11 of reservation commands.
const (
	resvIgnoreKey  = 1 << 3 // IEKEY
	resvTypeShift  = 8
	resvCPTPLShift = 30
	resvExtended   = 1 << 0 // EDS
)

// SetResvRegister makes c a Reservation Register.
func (c *Command) SetResvRegister(nsid uint32, a ResvAction, ignoreKey bool, p CPTPL) {
	c.setReservation(OpResvRegister, nsid, a, ignoreKey)
	c.SetCDW(10, c.CDW10()|uint32(p)<<resvCPTPLShift)
}

// SetResvAcquire makes c a Reservation Acquire.
func (c *Command) SetResvAcquire(nsid uint32, a ResvAction, t ResvType) {
	c.setReservation(OpResvAcquire, nsid, a, false)
	c.SetCDW(10, c.CDW10()|uint32(t)<<resvTypeShift)
}

// SetResvRelease makes c a Reservation Release.
func (c *Command) SetResvRelease(nsid uint32, a ResvAction, t ResvType) {
	c.setReservation(OpResvRelease, nsid, a, false)
	c.SetCDW(10, c.CDW10()|uint32(t)<<resvTypeShift)
}

func (c *Command) setReservation(op Opcode, nsid uint32, a ResvAction, ignoreKey bool) {
	c.start(op, nsid)
	dw := uint32(a & 7)
	if ignoreKey {
		dw |= resvIgnoreKey
	}
	c.SetCDW(10, dw)
}

// SetResvReport makes c a Reservation Report of length bytes, rounded up to dwords, in the
// extended form, which has host identifiers of 128 bits.
func (c *Command) SetResvReport(nsid uint32, length int) {
	c.start(OpResvReport, nsid)
	c.SetCDW(10, uint32((length+3)/4-1))
	c.SetCDW(11, resvExtended)
}

// ResvAction is the action of Reservation Register, Acquire and Release.
func (c *Command) ResvAction() ResvAction { return ResvAction(c.CDW10() & 7) }

// ResvIgnoreKey is IEKEY.
func (c *Command) ResvIgnoreKey() bool { return c.CDW10()&resvIgnoreKey != 0 }

// ResvType is RTYPE of Reservation Acquire and Release.
func (c *Command) ResvType() ResvType { return ResvType(c.CDW10() >> resvTypeShift) }

// CPTPL is CPTPL of Reservation Register.
func (c *Command) CPTPL() CPTPL { return CPTPL(c.CDW10() >> resvCPTPLShift) }

// ResvReportLength is NUMD of Reservation Report in bytes.
func (c *Command) ResvReportLength() uint64 { return (uint64(c.CDW10()) + 1) * 4 }

// ResvExtended is EDS of Reservation Report.
func (c *Command) ResvExtended() bool { return c.CDW(11)&resvExtended != 0 }

// ResvKeys is the data of Reservation Register (CRKEY, NRKEY), Acquire (CRKEY, PRKEY) and
// Release (CRKEY).
type ResvKeys struct {
	Current uint64
	Other   uint64
}

// AppendTo appends the 16 bytes. Release takes only the first 8.
func (k ResvKeys) AppendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, k.Current)
	return binary.LittleEndian.AppendUint64(b, k.Other)
}

// Parse reads the 16 bytes of Register and Acquire, or the 8 bytes of Release.
func (k *ResvKeys) Parse(b []byte) error {
	if len(b) < ResvReleaseSize {
		return shortError("reservation keys", len(b), ResvReleaseSize)
	}
	*k = ResvKeys{Current: binary.LittleEndian.Uint64(b)}
	if len(b) >= ResvKeysSize {
		k.Other = binary.LittleEndian.Uint64(b[8:])
	}
	return nil
}

// Sizes of the parts of the Reservation Status data structure, extended form, in bytes.
const (
	ResvStatusSize     = 64
	ResvRegistrantSize = 64
)

// ResvStatus is the Reservation Status data structure in its extended form.
type ResvStatus struct {
	Generation  uint32
	Type        ResvType
	Persist     bool // PTPLS
	Registrants []ResvRegistrant
}

// ResvRegistrant is a Registered Controller data structure in its extended form.
type ResvRegistrant struct {
	CNTLID uint16 // CNTLIDDynamic for a host that isn't connected
	Holder bool
	Key    uint64
	HostID HostID
}

// AppendTo appends the structure.
func (p *ResvStatus) AppendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, p.Generation)
	b = append(b, byte(p.Type))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(p.Registrants)))
	b = append(b, 0, 0, boolByte(p.Persist))
	b = append(b, make([]byte, ResvStatusSize-10)...)
	for _, r := range p.Registrants {
		b = binary.LittleEndian.AppendUint16(b, r.CNTLID)
		b = append(b, boolByte(r.Holder), 0, 0, 0, 0, 0)
		b = binary.LittleEndian.AppendUint64(b, r.Key)
		b = append(b, r.HostID[:]...)
		b = append(b, make([]byte, ResvRegistrantSize-32)...)
	}
	return b
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// Parse reads the structure. Registrants that aren't wholly in b are left out.
func (p *ResvStatus) Parse(b []byte) error {
	if len(b) < ResvStatusSize {
		return shortError("Reservation Status", len(b), ResvStatusSize)
	}
	*p = ResvStatus{Generation: binary.LittleEndian.Uint32(b), Type: ResvType(b[4]), Persist: b[9]&1 != 0}
	n := int(binary.LittleEndian.Uint16(b[5:]))
	for b = b[ResvStatusSize:]; n > 0 && len(b) >= ResvRegistrantSize; n-- {
		p.Registrants = append(p.Registrants, ResvRegistrant{
			CNTLID: binary.LittleEndian.Uint16(b), Holder: b[2]&1 != 0,
			Key: binary.LittleEndian.Uint64(b[8:]), HostID: HostID(b[16:32]),
		})
		b = b[ResvRegistrantSize:]
	}
	return nil
}

// ResvStatusLength is the size in bytes of the whole structure that begins with b, which must hold at least ResvStatusSize
// bytes.
func ResvStatusLength(b []byte) int {
	return ResvStatusSize + ResvRegistrantSize*int(binary.LittleEndian.Uint16(b[5:]))
}

// RESCAP is Reservation Capabilities of Identify Namespace.
type RESCAP uint8

// Bits of RESCAP. Bits 1 to 6 are the types, by number.
const (
	RESCAPPersist   RESCAP = 1 << 0
	RESCAPAllTypes  RESCAP = 0x7e
	RESCAPIgnoreKey RESCAP = 1 << 7 // IEKEY is as NVMe 1.3 and later define it
)

// ResvPersistPTPL is PTPL, bit 0 of feature 83h.
const ResvPersistPTPL = 1 << 0
