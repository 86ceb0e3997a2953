package roce

import (
	"math"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestSendRingGrows keeps each request at its index, while all are in use and indices wrap.
func TestSendRingGrows(t *testing.T) {
	const limit = 100
	r := sendRing{ring: newRing[sendWQE](limit, 4)}
	if n := len(r.slots); n != fewSlots {
		t.Fatalf("%d slots from the start: want %d", n, fewSlots)
	}
	r.inline = true
	head := uint32(math.MaxUint32 - 40)
	r.equipInline(head, len(r.slots))
	for i := range uint32(limit) {
		if int(i) == len(r.slots) {
			r.grow(head)
		}
		w := r.at(head + i)
		if len(w.sges) != 0 || cap(w.sges) != usualSGEs || len(w.inline) != 0 || cap(w.inline) != maxInline {
			t.Fatalf("slot %d: room for %d (%d used) and %d bytes (%d used)", i, cap(w.sges), len(w.sges), cap(w.inline), len(w.inline))
		}
		w.wrID, w.inline = uint64(i), append(w.inline, byte(i))
	}
	for i := range uint32(limit) {
		if w := r.at(head + i); w.wrID != uint64(i) || w.inline[0] != byte(i) {
			t.Errorf("request %d, data %d at index %d", w.wrID, w.inline[0], i)
		}
	}
	if n := len(r.slots); n != powerOfTwo(limit) {
		t.Errorf("%d slots for %d requests: want %d", n, limit, powerOfTwo(limit))
	}
	if n := len(newRing[sendWQE](3, 1).slots); n != 4 {
		t.Errorf("%d slots where 3 requests are the limit: want 4", n)
	}
}

// TestRecvRingGrows keeps each receive at its index, while all are posted and indices wrap.
func TestRecvRingGrows(t *testing.T) {
	const limit = 100
	r := newRing[recvWQE](limit, 4)
	if n := len(r.slots); n != fewSlots {
		t.Fatalf("%d slots from the start: want %d", n, fewSlots)
	}
	head := uint32(math.MaxUint32 - 40)
	for i := range uint32(limit) {
		if int(i) == len(r.slots) {
			r.grow(head)
		}
		w := r.at(head + i)
		if len(w.sges) != 0 || cap(w.sges) != usualSGEs {
			t.Fatalf("slot %d: room for %d (%d used)", i, cap(w.sges), len(w.sges))
		}
		w.wrID, w.sges = uint64(i), append(w.sges, verbs.SGE{Addr: uint64(i)})
	}
	for i := range uint32(limit) {
		if w := r.at(head + i); w.wrID != uint64(i) || w.sges[0].Addr != uint64(i) {
			t.Errorf("receive %d at address %d at index %d", w.wrID, w.sges[0].Addr, i)
		}
	}
	if n := len(r.slots); n != powerOfTwo(limit) {
		t.Errorf("%d slots for %d receives: want %d", n, limit, powerOfTwo(limit))
	}
}
