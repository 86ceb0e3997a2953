package loadgen

import (
	"fmt"
	"math/rand/v2"
	"sync"
)

// ledger records which version of each unit of the device a run has written, to check what it reads back. All jobs
// of a run share it.
type ledger struct {
	unit int64 // bytes; the size of every operation is a multiple of it
	run  uint64

	mu    sync.Mutex
	last  uint32 // version
	pages [][]uint32
}

const (
	underWay   = 1 << 31 // in an entry: a write or trim of the unit has not ended
	ledgerPage = 1 << 14 // entries
	maxUnits   = 1 << 38 // of a ledger: its empty pages take 400 MB of address space; reading back looks at each unit
)

// newLedger returns a ledger for the part of the device before end.
func newLedger(unit, end int64) *ledger {
	units := (end-1)/unit + 1
	return &ledger{
		unit: unit, run: rand.Uint64(),
		pages: make([][]uint32, (units+ledgerPage-1)/ledgerPage),
	}
}

// entry returns the entry of unit i, or nil if its page has never been written to, unless create is set. Called
// with mu held.
func (l *ledger) entry(i int64, create bool) *uint32 {
	p := &l.pages[i/ledgerPage]
	if *p == nil {
		if !create {
			return nil
		}
		*p = make([]uint32, ledgerPage)
	}
	return &(*p)[i%ledgerPage]
}

// claim records that a write or trim is about to start. It returns false if another one of the same units is
// outstanding, since then nobody could tell whose data remains.
func (l *ledger) claim(offset, length int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, n := offset/l.unit, length/l.unit
	for i := first; i < first+n; i++ {
		if *l.entry(i, true)&underWay != 0 {
			return false
		}
	}
	l.last = (l.last + 1) &^ underWay
	version := max(l.last, 1)
	for i := first; i < first+n; i++ {
		*l.entry(i, true) = version | underWay
	}
	return true
}

// stamp stamps a write whose units were claimed for it.
func (l *ledger) stamp(buf []byte, offset int64) {
	l.mu.Lock()
	version := l.version(offset/l.unit) &^ underWay
	l.mu.Unlock()
	for at := int64(0); at < int64(len(buf)); at += l.unit {
		writeStamp(buf[at:at+l.unit], offset+at, l.run, version)
	}
}

// end records that a write has ended.
func (l *ledger) end(buf []byte, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, n := offset/l.unit, int64(len(buf))/l.unit
	for i := first; i < first+n; i++ {
		*l.entry(i, true) &^= underWay
	}
}

// forget records that a trim has ended: what its units read as is now up to the device.
func (l *ledger) forget(offset, length int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, n := offset/l.unit, length/l.unit
	for i := first; i < first+n; i++ {
		*l.entry(i, true) = 0
	}
}

// note stores in versions what a read that is about to start may find.
func (l *ledger) note(versions []uint32, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range versions {
		versions[i] = l.version(offset/l.unit + int64(i))
	}
}

// version returns an entry's value; 0 for a unit that this run has not written. Called with mu held.
func (l *ledger) version(i int64) uint32 {
	if e := l.entry(i, false); e != nil {
		return *e
	}
	return 0
}

// check compares what a read found with the versions that note stored when it began, and returns how many units it
// could check: those that this run wrote, and that no write touched in the meantime.
func (l *ledger) check(buf []byte, offset int64, versions []uint32) (int, error) {
	checked := 0
	for i, want := range versions {
		at := int64(i) * l.unit
		l.mu.Lock()
		now := l.version((offset + at) / l.unit)
		l.mu.Unlock()
		if want == 0 || want&underWay != 0 || now != want {
			continue
		}
		s, err := readStamp(buf[at:at+l.unit], offset+at)
		if err != nil {
			return checked, err
		}
		if s.run != l.run || s.version != want {
			return checked, &VerifyError{offset + at, int(l.unit), fmt.Sprintf(
				"these are older data: version %d of run %#x, want version %d of run %#x", s.version, s.run, want, l.run)}
		}
		checked++
	}
	return checked, nil
}

// written reports whether this run has written any unit of a range.
func (l *ledger) written(offset, n int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := offset / l.unit; i < (offset+n)/l.unit; i++ {
		if l.version(i) != 0 {
			return true
		}
	}
	return false
}
