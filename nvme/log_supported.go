package nvme

import "unsafe"

// SupportedLogs is the Supported Log Pages log, 00h: one entry for each LID.
type SupportedLogs [256]uint32

var _ [1024]byte = [unsafe.Sizeof(SupportedLogs{})]byte{}

// LogIsSupported is bit 0 of an entry of SupportedLogs: LSUPP.
const LogIsSupported = 1 << 0

// LogHasHeaderAction is bit 16 of the entry of the Persistent Event log: ECRH, which says that there is PersistentHeader.
const LogHasHeaderAction = 1 << 16

// AppendTo appends the page.
func (p *SupportedLogs) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *SupportedLogs) Parse(b []byte) error {
	return parsePage(b, p, int(unsafe.Sizeof(*p)), LogSupported.String())
}
