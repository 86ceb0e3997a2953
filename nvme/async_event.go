package nvme

import "fmt"

// SetAsyncEvent makes c an Asynchronous Event Request.
func (c *Command) SetAsyncEvent() { c.start(OpAsyncEvent, 0) }

// AsyncEvent is the result of an Asynchronous Event Request: type in bits 2:0, information in
// 15:8, log page in 23:16.
type AsyncEvent uint32

// AsyncEventType is bits 2:0.
type AsyncEventType uint8

// Event types.
const (
	EventError      AsyncEventType = 0
	EventSMART      AsyncEventType = 1
	EventNotice     AsyncEventType = 2
	EventImmediate  AsyncEventType = 3
	EventOneShot    AsyncEventType = 4
	EventCommandSet AsyncEventType = 6
	EventVendor     AsyncEventType = 7
)

// Information of EventNotice.
const (
	NoticeNamespaceChanged   uint8 = 0x00
	NoticeFirmwareActivation uint8 = 0x01
	NoticeTelemetry          uint8 = 0x02
	NoticeANAChange          uint8 = 0x03
	NoticeDiscoveryChanged   uint8 = 0xf0
)

// Events that both sides of this project know, with the log page that holds the details.
const (
	EventNamespaceChanged = AsyncEvent(EventNotice) | AsyncEvent(NoticeNamespaceChanged)<<8 | AsyncEvent(LogChangedNamespaces)<<16
	EventFirmware         = AsyncEvent(EventNotice) | AsyncEvent(NoticeFirmwareActivation)<<8 | AsyncEvent(LogFirmware)<<16
	EventANAChanged       = AsyncEvent(EventNotice) | AsyncEvent(NoticeANAChange)<<8 | AsyncEvent(LogANA)<<16
	// EventReservation is Reservation Log Page Available, of the NVM command set.
	EventReservation = AsyncEvent(EventCommandSet) | AsyncEvent(LogReservation)<<16
	// EventSanitized is Sanitize Operation Completed.
	EventSanitized        = AsyncEvent(EventCommandSet) | 1<<8 | AsyncEvent(LogSanitize)<<16
	EventDiscoveryChanged = AsyncEvent(EventNotice) | AsyncEvent(NoticeDiscoveryChanged)<<8 | AsyncEvent(LogDiscovery)<<16
)

// Type is the kind of event.
func (e AsyncEvent) Type() AsyncEventType { return AsyncEventType(e & 7) }

// Info says what happened, by type.
func (e AsyncEvent) Info() uint8 { return uint8(e >> 8) }

// LID is the log page whose reading (without RAE) clears the event.
func (e AsyncEvent) LID() LID { return LID(e >> 16) }

func (e AsyncEvent) String() string {
	if e.Type() == EventNotice {
		switch e.Info() {
		case NoticeNamespaceChanged:
			return "namespace attribute changed"
		case NoticeFirmwareActivation:
			return "firmware activation starting"
		case NoticeTelemetry:
			return "telemetry log changed"
		case NoticeANAChange:
			return "asymmetric namespace access changed"
		case NoticeDiscoveryChanged:
			return "discovery log changed"
		}
	}
	if e == EventReservation {
		return "reservation notification available"
	}
	if e == EventSanitized {
		return "sanitize operation completed"
	}
	names := map[AsyncEventType]string{EventError: "error", EventSMART: "SMART / health", EventNotice: "notice",
		EventImmediate: "immediate", EventOneShot: "one-shot", EventCommandSet: "I/O command set", EventVendor: "vendor"}
	name, ok := names[e.Type()]
	if !ok {
		name = fmt.Sprintf("type %d", e.Type())
	}
	return fmt.Sprintf("%s event, information %#02x, %s", name, e.Info(), e.LID())
}

// AsyncEventConfig is feature 0Bh: the events that the host wants. OAES has the same bits.
type AsyncEventConfig uint32

// Bits of AsyncEventConfig.
const (
	AENSpare       AsyncEventConfig = 1 << 0
	AENTemperature AsyncEventConfig = 1 << 1
	AENReliability AsyncEventConfig = 1 << 2
	AENReadOnly    AsyncEventConfig = 1 << 3
	AENBackup      AsyncEventConfig = 1 << 4
	AENNamespace   AsyncEventConfig = 1 << 8
	AENFirmware    AsyncEventConfig = 1 << 9
	AENTelemetry   AsyncEventConfig = 1 << 10
	AENANA         AsyncEventConfig = 1 << 11
	AENDiscovery   AsyncEventConfig = 1 << 31
)
