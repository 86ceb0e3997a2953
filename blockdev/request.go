package blockdev

import (
	"errors"
	"fmt"
)

// Errors that Check reports as the cause below ErrInvalid and ErrRange.
var (
	errOp     = errors.New("unknown operation")
	errLength = errors.New("length isn't the sum of the buffers'")
	errNoLoan = errors.New("it has a loan, and isn't a write to a volume that lends memory")
)

// String returns the operation's name as it appears in errors.
func (op Op) String() string {
	switch op {
	case OpRead:
		return "read"
	case OpWrite:
		return "write"
	case OpFlush:
		return "flush"
	case OpDiscard:
		return "discard"
	case OpWriteZeroes:
		return "write zeroes"
	}
	return fmt.Sprintf("operation %d", uint8(op))
}

// Check reports whether r is well formed and inside a volume of size bytes that info describes (size is separate
// because it may change while info doesn't). Buffers may have any alignment.
func Check(info *Info, size int64, r *Request) error {
	if r.Op == OpFlush {
		return nil
	}
	if r.Op < OpRead || r.Op > OpWriteZeroes {
		return info.Fail(r.Op, r.Offset, ErrInvalid, errOp)
	}
	if r.Op != OpRead && info.ReadOnly {
		return info.Fail(r.Op, r.Offset, ErrReadOnly, nil)
	}
	if err := CheckRange(info, size, r.Op, r.Offset, r.Length); err != nil {
		return err
	}
	if r.Loan != 0 {
		if r.Op != OpWrite || info.LoanUnit == 0 {
			return info.Fail(r.Op, r.Offset, ErrInvalid, errNoLoan)
		}
		return nil
	}
	if r.Op <= OpWrite {
		var sum int64
		for _, b := range r.Bufs {
			sum += int64(len(b))
		}
		if sum != r.Length {
			return info.Fail(r.Op, r.Offset, ErrInvalid, errLength)
		}
	}
	return nil
}

// CheckRange reports whether op's range consists of whole blocks inside the volume.
func CheckRange(info *Info, size int64, op Op, offset, length int64) error {
	if offset < 0 || length < 0 || (offset|length)&int64(info.BlockSize-1) != 0 {
		return info.Fail(op, offset, ErrInvalid, fmt.Errorf("offset %d and length %d aren't multiples of the block size %d",
			offset, length, info.BlockSize))
	}
	if length > size-offset {
		return info.Fail(op, offset, ErrRange, fmt.Errorf("%d bytes asked, the volume has %d", length, size))
	}
	return nil
}

// TakeLoan takes the loan out of a request that will not use it, or has stopped using it.
func (r *Request) TakeLoan() LoanToken {
	t := r.Loan
	r.Loan = 0
	return t
}

// End completes the request.
func (r *Request) End(err error) { r.EndIn(nil, err) }

// EndIn completes the request as part of a row.
func (r *Request) EndIn(row *Row, err error) {
	r.Row, r.Err = row, err
	r.Complete(r)
}

// CopyOut fills dst with the request's data from byte skip on, for one piece of a write.
func (r *Request) CopyOut(dst []byte, skip int64) {
	for _, b := range r.Bufs {
		if skip >= int64(len(b)) {
			skip -= int64(len(b))
			continue
		}
		n := copy(dst, b[skip:])
		if dst = dst[n:]; len(dst) == 0 {
			return
		}
		skip = 0
	}
}

// CopyIn copies src into the request's buffers from byte skip on, for one piece of a read.
func (r *Request) CopyIn(src []byte, skip int64) {
	for _, b := range r.Bufs {
		if skip >= int64(len(b)) {
			skip -= int64(len(b))
			continue
		}
		n := copy(b[skip:], src)
		if src = src[n:]; len(src) == 0 {
			return
		}
		skip = 0
	}
}
