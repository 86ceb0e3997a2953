package blockdev

import "errors"

// Lender is a Memory that also takes a write's data in place: a transport puts the data straight into memory that the
// volume lends, and nothing copies it from there.
//
//	segs, loan, err := v.Lend(segs, length)
//	// fill the segments, from the network
//	r.Op, r.Loan = OpWrite, loan // and Offset, Length, FUA; no Bufs
//	v.Submit(r)                  // or v.Return(loan), if the data didn't arrive
type Lender interface {
	Memory
	// Lend appends to segs memory for length bytes, at most MaxSegments pieces of Regions whose Lent is set. Its
	// content is undefined until it is filled, and nobody else sees it before Submit. An error that is ErrBusy means
	// that no such memory is free now, or that there never is because length isn't a multiple of Info.LoanUnit: submit
	// a write with buffers instead.
	Lend(segs []Segment, length int64) ([]Segment, LoanToken, error)
	// Return gives back memory that was lent and will not be submitted.
	Return(LoanToken)
}

// LoanToken names memory that was lent. It ends with Submit, whatever the result, or with Return. 0 means none.
type LoanToken uint64

// MaxSegments is the most pieces that a view or a loan has; one that would need more fails with ErrBusy. It limits the
// work requests of a transfer.
const MaxSegments = 64

// ErrLoan is the cause, below ErrInvalid, of an error for a borrower's mistake.
var ErrLoan = errors.New("a loan is of whole blocks, of a volume that takes writes, and is submitted as long as it is")
