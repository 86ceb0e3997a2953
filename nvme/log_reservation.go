package nvme

import (
	"fmt"
	"unsafe"
)

// ReservationNotificationSize is the size of the page in bytes.
const ReservationNotificationSize = 64

// ReservationNotification is the Reservation Notification log, 80h; all zero if there is no
// notification.
type ReservationNotification struct {
	Count uint64
	Type  uint8 // ResvNotice…
	Pages uint8 // number of further notifications
	_     [2]byte
	NSID  uint32
	_     [48]byte
}

var _ [ReservationNotificationSize]byte = [unsafe.Sizeof(ReservationNotification{})]byte{}

// Types of ReservationNotification.
const (
	ResvNoticeNone                  uint8 = 0
	ResvNoticeRegistrationPreempted uint8 = 1
	ResvNoticeReleased              uint8 = 2
	ResvNoticePreempted             uint8 = 3
)

// AppendTo appends the page.
func (p *ReservationNotification) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *ReservationNotification) Parse(b []byte) error {
	return parsePage(b, p, ReservationNotificationSize, LogReservation.String())
}

func (p ReservationNotification) String() string {
	what := fmt.Sprintf("reservation notification %d", p.Type)
	switch p.Type {
	case ResvNoticeRegistrationPreempted:
		what = "registration preempted"
	case ResvNoticeReleased:
		what = "reservation released"
	case ResvNoticePreempted:
		what = "reservation preempted"
	}
	return fmt.Sprintf("%s, namespace %d", what, p.NSID)
}
