package loadgen

import (
	"math"
	"testing"
)

// newestUnit writes a unit of l, and returns what is then to be read there.
func newestUnit(t *testing.T, l *ledger, offset int64) []byte {
	t.Helper()
	buf := make([]byte, l.unit)
	if !l.claim(offset, l.unit) {
		t.Fatalf("offset %d is being written to", offset)
	}
	l.stamp(buf, offset)
	l.end(buf, offset)
	return buf
}

// A read has to find the last version of a unit. It isn't judged if a write came in between, or after a trim.
func TestLedger(t *testing.T) {
	const unit = 4096
	l := newLedger(unit, 8*unit)
	check := func(what string, buf []byte, versions []uint32, checked int, fails bool) {
		t.Helper()
		if n, err := l.check(buf, unit, versions); n != checked || (err != nil) != fails {
			t.Errorf("%s: %d units are checked, %v", what, n, err)
		}
	}
	versions := make([]uint32, 1)
	first := newestUnit(t, l, unit)
	second := newestUnit(t, l, unit)
	l.note(versions, unit)
	check("the last version", second, versions, 1, false)
	check("the one before", first, versions, 0, true)
	third := newestUnit(t, l, unit)
	check("a version that came in between", third, versions, 0, false)
	l.note(versions, unit)
	l.forget(0, unit)
	check("a neighbour of what was trimmed", third, versions, 1, false)
	l.forget(unit, unit)
	l.note(versions, unit)
	check("what was trimmed", first, versions, 0, false)
}

// A ledger keeps account of the largest range, in pieces of any size.
func TestLedgerOfAll(t *testing.T) {
	const unit, units = 1 << 40, 1<<23 - 1
	if l := newLedger(unit, math.MaxInt64); !l.claim((units-1)*unit, unit) || l.claim((units-1)*unit, unit) {
		t.Error("the last unit isn't accounted for")
	}
}

// The end of a write doesn't end those of its neighbours.
func TestLedgerNeighbours(t *testing.T) {
	const unit = 4096
	l := newLedger(unit, 8*unit)
	if !l.claim(unit, 2*unit) {
		t.Fatal("nobody writes there")
	}
	newestUnit(t, l, 0)
	newestUnit(t, l, 3*unit)
	for _, offset := range []int64{unit, 2 * unit} {
		if l.claim(offset, unit) {
			t.Errorf("two write at %d", offset)
		}
	}
}
