package blockdev

// What a volume in memory lends: free places of stripes. A loan's token consists of the first place of a list and the
// number of places.

const loanCountBits = 8

func (t LoanToken) places() (list place, n int) {
	return place(t >> loanCountBits), int(t & (1<<loanCountBits - 1))
}

// Lend lends places of whole stripes: since a stripe has one place, shorter data would have to be copied there.
func (v *memory) Lend(segs []Segment, length int64) ([]Segment, LoanToken, error) {
	if v.info.ReadOnly || length <= 0 || length&int64(v.info.BlockSize-1) != 0 || length > v.info.Size {
		return segs, 0, v.info.Fail(OpWrite, -1, ErrInvalid, ErrLoan)
	}
	n := int(length >> stripeShift)
	if length&(stripeSize-1) != 0 || n > MaxSegments {
		return segs, 0, ErrView
	}
	if !v.life.Enter() {
		return segs, 0, v.info.Gone(OpWrite, -1)
	}
	list := v.places.take(n)
	if list == 0 {
		v.life.Leave()
		return segs, 0, ErrView
	}
	for x := list; x != 0; x = v.places.after(x) {
		segs = append(segs, Segment{Region: v.region[0], Bytes: v.places.bytes(x)})
	}
	return segs, LoanToken(list)<<loanCountBits | LoanToken(n), nil
}

// Return frees the places.
func (v *memory) Return(t LoanToken) {
	if list, _ := t.places(); list != 0 {
		v.places.give(list)
		v.life.Leave()
	}
}

// writeLent puts the lent places into the request's stripes, or copies them if the request doesn't cover whole stripes.
func (v *memory) writeLent(r *Request) {
	list, n := r.Loan.places()
	switch {
	case int64(n)<<stripeShift != r.Length:
		v.end(r, v.info.Fail(r.Op, r.Offset, ErrInvalid, ErrLoan))
	case r.Offset&(stripeSize-1) == 0:
		r.Loan = 0
		for off := r.Offset; list != 0; off += stripeSize {
			x := list
			list = v.places.after(x)
			v.guard.replace(off, x)
		}
		v.life.Leave() // the loan's
		v.end(r, nil)
	default:
		r.Bufs = r.Bufs[:0]
		for ; list != 0; list = v.places.after(list) {
			r.Bufs = append(r.Bufs, v.places.bytes(list))
		}
		if v.guard.Write(r) {
			v.finish(r)
		}
	}
}
