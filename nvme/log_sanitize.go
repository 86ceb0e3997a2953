package nvme

import "unsafe"

// SanitizeLogSize is the size of the page in bytes.
const SanitizeLogSize = 512

// SanitizeLog is the Sanitize Status log, 81h.
type SanitizeLog struct {
	SPROG  uint16         // progress, in 65536ths; FFFFh if no operation is in progress
	SSTAT  SanitizeStatus // of the last operation
	SCDW10 uint32         // dword 10 of the Sanitize that started it
	// Estimated times in seconds; FFFFFFFFh if not reported.
	OverwriteTime, BlockEraseTime, CryptoEraseTime       uint32
	OverwriteTimeND, BlockEraseTimeND, CryptoEraseTimeND uint32 // with SanitizeNDAS
	_                                                    [480]byte
}

var _ [SanitizeLogSize]byte = [unsafe.Sizeof(SanitizeLog{})]byte{}

// AppendTo appends the page.
func (p *SanitizeLog) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads the page from b.
func (p *SanitizeLog) Parse(b []byte) error {
	return parsePage(b, p, SanitizeLogSize, LogSanitize.String())
}

// SanitizeStatus is SSTAT.
type SanitizeStatus uint16

// States of the last sanitize operation, in bits 2:0 of SSTAT.
const (
	SanitizeNever      SanitizeStatus = 0
	SanitizeDone       SanitizeStatus = 1
	SanitizeInProgress SanitizeStatus = 2
	SanitizeFailed     SanitizeStatus = 3
	SanitizeDoneND     SanitizeStatus = 4 // done, and blocks deallocated although the host asked not to
)

// State is the state of the last operation.
func (s SanitizeStatus) State() SanitizeStatus { return s & 7 }

// String returns the state of the last operation in words.
func (s SanitizeStatus) String() string {
	switch s.State() {
	case SanitizeNever:
		return "never sanitized"
	case SanitizeDone:
		return "completed"
	case SanitizeInProgress:
		return "in progress"
	case SanitizeFailed:
		return "failed"
	case SanitizeDoneND:
		return "completed, deallocated against the request"
	}
	return "status " + hexadecimal(uint64(s.State()))
}

// Passes is the number of completed passes of an overwrite.
func (s SanitizeStatus) Passes() int { return int(s >> 3 & 0x1f) }

// WithPasses returns s with n completed passes.
func (s SanitizeStatus) WithPasses(n int) SanitizeStatus { return s&^0xf8 | SanitizeStatus(n&0x1f)<<3 }
