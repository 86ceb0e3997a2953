package nvme

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"
)

// PersistentAction is the log specific parameter of the Persistent Event log, bits 1:0: what
// happens to the reporting context of the controller.
type PersistentAction uint8

// Actions.
const (
	PersistentRead      PersistentAction = 0 // read from the existing context
	PersistentEstablish PersistentAction = 1 // establish a context and read
	PersistentRelease   PersistentAction = 2
	PersistentHeader    PersistentAction = 3 // establish a context and read the header
)

// PersistentHeaderSize is the size of PersistentLogHeader in bytes.
const PersistentHeaderSize = 512

// PersistentEventHead is the minimum size in bytes of the header that each event has before its data.
const PersistentEventHead = 24

// PersistentLogUnit is the unit of PELS of Identify Controller, in bytes.
const PersistentLogUnit = 64 << 10

// PersistentLogHeader is the beginning of the Persistent Event log, 0Dh. The events follow, newest
// first.
type PersistentLogHeader struct {
	LID                 LID
	_                   [3]byte
	Events              uint32 // TNEV
	Length              uint64 // TLL: length of the log, bytes
	Revision            uint8  // of this header
	_                   [1]byte
	HeaderLength        uint16 // length of the header after this field, bytes
	Timestamp           uint64 // ms in bits 47:0
	PowerOnHours        Uint128
	PowerCycles         uint64
	VID, SSVID          uint16
	SN                  [20]byte
	MN                  [40]byte
	SUBNQN              [256]byte
	Generation          uint16 // changes with each reporting context
	ReportingContext    uint32 // PersistentContextExisted …, and the port in bits 15:0; 0 if none existed
	_                   [102]byte
	SupportedEventsBits [32]byte
}

// Values of the fields of PersistentLogHeader.
const (
	PersistentRevision       = 3
	PersistentHeaderRest     = PersistentHeaderSize - 20
	PersistentContextExisted = 1 << 18 // RCE: before this command
	PersistentContextOfPort  = 1 << 16 // RCPIT: established by an NVM subsystem port

	persistentEventHeadRest = PersistentEventHead - 3
	persistentEventNoPort   = 3 // EHAI: the event isn't associated with a port
)

// AppendTo appends the header.
func (p *PersistentLogHeader) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the header from b.
func (p *PersistentLogHeader) Parse(b []byte) error {
	return parsePage(b, p, PersistentHeaderSize, LogPersistent.String())
}

// PersistentEventType is the type of an event.
type PersistentEventType uint8

// Types of events.
const (
	PersistentSMART       PersistentEventType = 0x01 // SMARTLog
	PersistentTimestamp   PersistentEventType = 0x03 // TimestampChangeEvent
	PersistentPowerOn     PersistentEventType = 0x04
	PersistentNamespace   PersistentEventType = 0x06 // ChangeNamespaceEvent
	PersistentFormatStart PersistentEventType = 0x07 // FormatStartEvent
	PersistentFormatEnd   PersistentEventType = 0x08 // FormatEndEvent
	PersistentSanitize    PersistentEventType = 0x09 // SanitizeStartEvent
	PersistentSanitizeEnd PersistentEventType = 0x0a // SanitizeEndEvent
)

func (t PersistentEventType) String() string {
	switch t {
	case PersistentSMART:
		return "SMART / Health Log Snapshot"
	case PersistentTimestamp:
		return "Timestamp Change"
	case PersistentPowerOn:
		return "Power-on or Reset"
	case PersistentNamespace:
		return "Change Namespace"
	case PersistentFormatStart:
		return "Format NVM Start"
	case PersistentFormatEnd:
		return "Format NVM Completion"
	case PersistentSanitize:
		return "Sanitize Start"
	case PersistentSanitizeEnd:
		return "Sanitize Completion"
	}
	return "event type " + hexadecimal(uint64(t))
}

// PersistentEvent is an event of the log.
type PersistentEvent struct {
	Type      PersistentEventType
	Revision  uint8
	CNTLID    uint16
	Timestamp uint64 // ms in bits 47:0
	Data      []byte // depends on Type
}

// Size is the size of the event in the log, in bytes.
func (e *PersistentEvent) Size() int { return PersistentEventHead + len(e.Data) }

// AppendTo appends the event.
func (e *PersistentEvent) AppendTo(b []byte) []byte {
	b = append(b, byte(e.Type), e.Revision, persistentEventHeadRest, persistentEventNoPort)
	b = binary.LittleEndian.AppendUint16(b, e.CNTLID)
	b = binary.LittleEndian.AppendUint64(b, e.Timestamp)
	b = append(b, make([]byte, 8)...) // PELPID, reserved, no vendor specific information
	b = binary.LittleEndian.AppendUint16(b, uint16(len(e.Data)))
	return append(b, e.Data...)
}

// Parse reads an event, and returns what follows it.
func (e *PersistentEvent) Parse(b []byte) (rest []byte, err error) {
	if len(b) < PersistentEventHead {
		return nil, shortError("Persistent Event", len(b), PersistentEventHead)
	}
	head := int(b[2]) + 3
	vendor, all := int(binary.LittleEndian.Uint16(b[20:])), int(binary.LittleEndian.Uint16(b[22:]))
	if head < PersistentEventHead || vendor > all {
		return nil, fmt.Errorf("nvme: Persistent Event: %w: header of %d bytes, %d of %d vendor specific", ErrMalformed, head, vendor, all)
	}
	if len(b) < head+all {
		return nil, shortError("Persistent Event", len(b), head+all)
	}
	*e = PersistentEvent{
		Type: PersistentEventType(b[0]), Revision: b[1], CNTLID: binary.LittleEndian.Uint16(b[4:]),
		Timestamp: binary.LittleEndian.Uint64(b[6:]), Data: slices.Clone(b[head+vendor : head+all]),
	}
	return b[head+all:], nil
}

// TimestampChangeEvent is the data of PersistentTimestamp.
type TimestampChangeEvent struct {
	Previous   uint64 // ms
	SinceReset uint64 // ms
}

// PowerOnEvent is the data of PersistentPowerOn with one controller.
type PowerOnEvent struct {
	Firmware   [8]byte
	CNTLID     uint16
	_          [14]byte
	PowerCycle uint32
	PowerOn    uint64 // ms
	Timestamp  uint64
}

// ChangeNamespaceEvent is the data of PersistentNamespace.
type ChangeNamespaceEvent struct {
	CDW10    uint32 // of Namespace Management
	_        [4]byte
	NSZE     uint64
	_        [8]byte
	NCAP     uint64
	FLBAS    uint8
	DPS      uint8
	NMIC     NMIC
	_        [1]byte
	ANAGRPID uint32
	NVMSETID uint16
	_        [2]byte
	NSID     uint32
}

// FormatStartEvent is the data of PersistentFormatStart.
type FormatStartEvent struct {
	NSID  uint32
	FNA   uint8
	_     [3]byte
	CDW10 uint32
}

// FormatEndEvent is the data of PersistentFormatEnd.
type FormatEndEvent struct {
	NSID        uint32
	SmallestFPI uint8
	Failed      uint8 // FNVMS: FormatError …; 0 if it succeeded
	Info        uint16
	StatusPhase uint16 // the status field as in the completion, phase in bit 0
	_           [2]byte
}

// Bits of FormatEndEvent.Failed.
const (
	FormatError      = 1 << 0
	FormatIncomplete = 1 << 1 // it erased something
)

// Status is the status of the completion.
func (e *FormatEndEvent) Status() Status { return Status(e.StatusPhase >> 1) }

// SanitizeStartEvent is the data of PersistentSanitize.
type SanitizeStartEvent struct {
	SANICAP      uint32
	CDW10, CDW11 uint32
}

// SanitizeEndEvent is the data of PersistentSanitizeEnd.
type SanitizeEndEvent struct {
	SPROG uint16
	SSTAT SanitizeStatus
	_     [4]byte
}

var (
	_ [16]byte = [unsafe.Sizeof(TimestampChangeEvent{})]byte{}
	_ [48]byte = [unsafe.Sizeof(ChangeNamespaceEvent{})]byte{}
	_ [12]byte = [unsafe.Sizeof(FormatStartEvent{})]byte{}
	_ [12]byte = [unsafe.Sizeof(FormatEndEvent{})]byte{}
	_ [12]byte = [unsafe.Sizeof(SanitizeStartEvent{})]byte{}
	_ [8]byte  = [unsafe.Sizeof(SanitizeEndEvent{})]byte{}
)

// PersistentData is the wire form of an event's data: a pointer to one of the types above.
func PersistentData(event any) []byte { return appendPage(nil, event) }

// Decode is the inverse of PersistentData for e.Data: it returns a pointer to one of these types, or nil for an event of
// any other type.
func (e *PersistentEvent) Decode() (event any, err error) {
	switch e.Type {
	case PersistentTimestamp:
		event = new(TimestampChangeEvent)
	case PersistentPowerOn:
		event = new(PowerOnEvent)
	case PersistentNamespace:
		event = new(ChangeNamespaceEvent)
	case PersistentFormatStart:
		event = new(FormatStartEvent)
	case PersistentFormatEnd:
		event = new(FormatEndEvent)
	case PersistentSanitize:
		event = new(SanitizeStartEvent)
	case PersistentSanitizeEnd:
		event = new(SanitizeEndEvent)
	default:
		return nil, nil //nolint:nilnil // what isn't known is no error
	}
	if err := parsePage(e.Data, event, binary.Size(event), e.Type.String()); err != nil {
		return nil, err
	}
	return event, nil
}
