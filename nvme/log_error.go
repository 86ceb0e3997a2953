package nvme

import "unsafe"

// ErrorEntrySize is the size of one entry of the Error Information log in bytes.
const ErrorEntrySize = 64

// ErrorEntry is one entry of the Error Information log, 01h, whose newest entry comes first. An
// entry that is all zero doesn't exist.
type ErrorEntry struct {
	Count             uint64 // error count, unique to this error; 0 is an invalid entry
	SQID              uint16
	CID               uint16
	StatusPhase       uint16 // the status field as in a completion, phase in bit 0
	Location          uint16 // parameter error location: byte in 7:0, bit in 10:8
	LBA               uint64
	NSID              uint32
	Vendor            uint8
	TRTYPE            TransportType
	_                 [2]byte
	Specific          uint64 // command specific information
	TransportSpecific uint16
	_                 [22]byte
}

var _ [ErrorEntrySize]byte = [unsafe.Sizeof(ErrorEntry{})]byte{}

// Status is the status of the failed command.
func (p *ErrorEntry) Status() Status { return Status(p.StatusPhase >> 1) }

// AppendTo appends the entry.
func (p *ErrorEntry) AppendTo(b []byte) []byte { return appendPage(b, p) }

// Parse reads one entry from b.
func (p *ErrorEntry) Parse(b []byte) error {
	return parsePage(b, p, ErrorEntrySize, "Error Information entry")
}
