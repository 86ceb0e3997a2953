package roce

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
)

// TestRecordsOfTheLastRound: PSNs are reused after 2^24 packets, which may be fewer READs and atomics than there are
// records. A repetition means the request that last had the PSN.
func TestRecordsOfTheLastRound(t *testing.T) {
	for _, between := range []int{0, 1, rawRate - 2} {
		var r recordRing
		r.init(rawRate)
		r.push(record{kind: responseAtomic, first: 100, end: 101, value: 1})
		r.push(record{kind: responseRead, first: 200, end: 204, va: 1})
		psn := wire.PSN(1 << 23)
		for range between { // of which some are the other half of the ring
			r.push(record{kind: responseRead, first: psn, end: psn.Next(), va: 9})
			psn = psn.Next()
		}
		r.push(record{kind: responseAtomic, first: 100, end: 101, value: 2})
		r.push(record{kind: responseRead, first: 202, end: 206, va: 2})
		if rec := r.find(100, responseAtomic); rec == nil || rec.value != 2 {
			t.Errorf("%d between: atomic at 100: %+v, want the value 2", between, rec)
		}
		if rec := r.find(203, responseRead); rec == nil || rec.va != 2 {
			t.Errorf("%d between: READ at 203: %+v, want the one that began at 202", between, rec)
		}
	}
}
