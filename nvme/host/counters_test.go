package host

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestErrorCounters: each response that isn't success counts once, by its status code type (NVMe base, "Status Code
// Type").
func TestErrorCounters(t *testing.T) {
	q, m := manual(8)
	defer m.sink.Closed(nil)
	for i, st := range []nvme.Status{
		nvme.StatusInvalidField, nvme.StatusInvalidFormat, nvme.StatusCompareFailure, nvme.StatusANATransition, 0x7c0, // vendor specific
	} {
		q.SubmitOne(requests(1, func(int, *Request) {})[0])
		m.answer(m.cids[i], st)
		c := &q.counters
		for j, n := range []uint64{
			c.GenericErrors.Load(), c.CommandErrors.Load(), c.MediaErrors.Load(), c.PathErrors.Load(), c.OtherErrors.Load(),
		} {
			want := uint64(0)
			if j <= i {
				want = 1
			}
			if n != want {
				t.Errorf("after %v, %d errors of type %d are counted, want %d", st, n, j, want)
			}
		}
	}
}
