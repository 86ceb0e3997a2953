package volumetest

import (
	"bytes"
	"errors"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// loanTests are for volumes that take data in place.
var loanTests = []struct {
	name string
	run  func(*session, blockdev.Lender)
}{
	{"loans", testLoans},
	{"loans returned", testLoansReturned},
	{"loans and views", testLoansAndViews},
	{"loans run out", testLoansRunOut},
	{"loans and close", testLoanClose},
}

// unit returns the smallest amount that is lent.
func (s *session) unit() int64 { return max(s.bs, int64(s.v.Info().LoanUnit)) }

// lend borrows memory and fills it.
func (s *session) lend(m blockdev.Lender, data []byte) blockdev.LoanToken {
	s.Helper()
	segs, loan, err := m.Lend([]blockdev.Segment{{}}, int64(len(data)))
	if err != nil {
		s.Fatalf("loan of %d: %v", len(data), err)
	}
	if segs[0].Region != nil || loan == 0 {
		s.Fatal("Lend didn't append, or gave no token")
	}
	segs = segs[1:]
	for _, x := range segs {
		if !inside(x, m.Regions()) || !x.Region.Lent {
			s.Fatal("a segment outside of the regions that are lent")
		}
	}
	if left := fill(segs, data); len(left) > 0 || len(segs) > blockdev.MaxSegments {
		s.Fatalf("%d bytes too few, in %d segments", len(left), len(segs))
	}
	return loan
}

// fill copies data to segments, and returns the rest that doesn't fit.
func fill(segs []blockdev.Segment, data []byte) []byte {
	for _, x := range segs {
		data = data[copy(x.Bytes, data):]
	}
	return data
}

// testLoans writes through loans: nothing shows before Submit, and everything after it.
func testLoans(s *session, m blockdev.Lender) {
	c := NewClient(s.v)
	old := s.random(256 << 10)
	s.write(c, old, 0)
	data := s.random(64 << 10)
	loan := s.lend(m, data)
	s.expect(c, 0, old)
	s.do(c, blockdev.Request{Op: blockdev.OpWrite, FUA: true, Offset: s.bs, Length: int64(len(data)), Loan: loan})
	copy(old[s.bs:], data)
	s.expect(c, 0, old)

	// Two that overlap, submitted in the opposite order.
	n := max(8*s.bs, s.unit())
	one, two := s.random(int(n)), s.random(int(n))
	first := s.lend(m, one)
	second := s.lend(m, two)
	s.do(c, blockdev.Request{Op: blockdev.OpWrite, Offset: n / 2, Length: n, Loan: second})
	s.do(c, blockdev.Request{Op: blockdev.OpWrite, Offset: 0, Length: n, Loan: first})
	copy(old[n/2:], two)
	copy(old, one)
	s.expect(c, 0, old)

	// A view keeps what it shows.
	segs, t, err := m.View(nil, 0, n)
	if err != nil {
		s.Fatal(err)
	}
	for range 4 {
		loan := s.lend(m, two)
		s.do(c, blockdev.Request{Op: blockdev.OpWrite, Offset: 0, Length: n, Loan: loan})
	}
	s.compare(0, join(segs), one)
	m.Release(t)
	s.expect(c, 0, two)
	if s.c.Volatile {
		return
	}
	s.reopen(blockdev.Options{})
	s.expect(NewClient(s.v), 0, two)
}

// testLoansReturned takes loans that are never written.
func testLoansReturned(s *session, m blockdev.Lender) {
	c := NewClient(s.v)
	old := s.random(64 << 10)
	s.write(c, old, 0)
	for range 3 * int(s.c.Size) / (256 << 10) {
		loan := s.lend(m, s.random(256<<10))
		m.Return(loan)
	}
	s.expect(c, 0, old)
	for _, x := range []struct {
		what string
		off  int64
		n    int64
		kind error
	}{
		{"beyond the end", s.c.Size, 64 << 10, blockdev.ErrRange},
		{"half blocks", 1, 64 << 10, blockdev.ErrInvalid},
		{"another length", 0, 32 << 10, blockdev.ErrInvalid},
	} {
		for range int(s.c.Size / (64 << 10)) { // whose loan is taken all the same
			loan := s.lend(m, old)
			err := c.Do(blockdev.Request{Op: blockdev.OpWrite, Offset: x.off, Length: x.n, Loan: loan})
			if !errors.Is(err, x.kind) {
				s.Fatalf("%s: %v", x.what, err)
			}
		}
	}
	for _, n := range []int64{-s.bs, 0, 1, s.c.Size + s.bs} {
		_, _, err := m.Lend(nil, n)
		wantKind(s, "a bad loan", err, blockdev.ErrInvalid)
	}
	s.expect(c, 0, old)
}

// testLoansAndViews writes units through loans, over and over, while others read and view them. A block is always
// whole, and stays as a view showed it. There are views at all times; if writers have to wait for some, no more are
// given.
func testLoansAndViews(s *session, m blockdev.Lender) {
	unit := s.unit()
	var writing atomic.Int32
	writing.Store(2)
	run(s, func(i int) error {
		c, rnd, b := NewClient(s.v), newRandom(s.seed, uint64(i)), make([]byte, 2*unit)
		if i < 2 {
			defer writing.Add(-1)
			return stampLent(c, m, rnd, b, int(s.bs))
		}
		for at := int64(0); writing.Load() > 0; at = unit - at {
			segs, t, err := m.View(nil, at, unit)
			if errors.Is(err, blockdev.ErrBusy) {
				segs, err = []blockdev.Segment{{Bytes: b}}, c.Read(b, at)
			}
			if err != nil {
				return err
			}
			before := join(segs)
			if err = checkStamps(before, s.bs); err == nil && !bytes.Equal(before, join(segs)) {
				err = errors.New("what a view showed has changed")
			}
			if t != 0 {
				m.Release(t)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// stampLent fills each block of b with a number, and writes b at 0 or at half its length, through a loan if there is
// one.
func stampLent(c *Client, m blockdev.Lender, rnd random, b []byte, bs int) error {
	for i := range 250 {
		for off := 0; off < len(b); off += bs {
			putStamp(b[off:off+bs], rnd.Uint64())
		}
		r := blockdev.Request{Op: blockdev.OpWrite, Offset: int64(i % 2 * len(b) / 2), Length: int64(len(b))}
		segs, loan, err := m.Lend(nil, r.Length)
		switch {
		case err == nil:
			fill(segs, b)
			r.Loan = loan
		case errors.Is(err, blockdev.ErrBusy):
			r.Bufs = [][]byte{b}
		default:
			return err
		}
		if err := c.Do(r); err != nil {
			return err
		}
	}
	return nil
}

// testLoansRunOut borrows everything there is: writes then wait, or copy, but don't fail.
func testLoansRunOut(s *session, m blockdev.Lender) {
	data := s.random(int(16 * s.bs))
	s.write(NewClient(s.v), data, 0)
	var loans []blockdev.LoanToken
	for {
		_, loan, err := m.Lend(nil, s.unit())
		if errors.Is(err, blockdev.ErrBusy) {
			break
		} else if err != nil {
			s.Fatal(err)
		}
		loans = append(loans, loan)
	}
	fresh := s.random(len(data))
	done := make(chan error, 1)
	s.v.Submit(&blockdev.Request{Op: blockdev.OpWrite, Length: int64(len(fresh)), Bufs: [][]byte{fresh},
		Complete: func(r *blockdev.Request) { done <- r.Err }})
	for _, loan := range loans {
		m.Return(loan)
	}
	if err := <-done; err != nil {
		s.Fatal(err)
	}
	s.expect(NewClient(s.v), 0, fresh)
}

// testLoanClose closes a volume while memory is lent.
func testLoanClose(s *session, m blockdev.Lender) {
	unit := s.unit()
	one := s.lend(m, s.random(int(unit)))
	two := s.lend(m, s.random(int(unit)))
	closed := make(chan error, 1)
	go func() { closed <- s.v.Close() }()
	for { // until Close has begun
		_, loan, err := m.Lend(nil, unit)
		if err != nil {
			wantKind(s, "loan while closing", err, blockdev.ErrGone)
			break
		}
		m.Return(loan)
	}
	select {
	case err := <-closed:
		s.Fatalf("closed with memory lent: %v", err)
	default:
	}
	err := NewClient(s.v).Do(blockdev.Request{Op: blockdev.OpWrite, Length: unit, Loan: one})
	wantKind(s, "write while closing", err, blockdev.ErrGone)
	m.Return(two)
	if err := <-closed; err != nil {
		s.Error(err)
	}
	s.v = nil
}
