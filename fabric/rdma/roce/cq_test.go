package roce

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// TestCompletionQueueGrows checks that completions stay in order, wherever the oldest is when the ring is full, up to
// the number of entries that was asked for.
func TestCompletionQueueGrows(t *testing.T) {
	const limit = 3*fewEntries + 1
	for taken := range fewEntries {
		c := &cq{d: &Device{}, ring: make([]verbs.WC, fewEntries), limit: limit}
		var next, oldest uint64
		push := func() bool {
			ok := c.push(&verbs.WC{WRID: next})
			if ok {
				next++
			}
			return ok
		}
		poll := func(n int) {
			t.Helper()
			wcs := make([]verbs.WC, n)
			got := c.Poll(wcs)
			if got != n {
				t.Fatalf("%d completions, want %d", got, n)
			}
			for _, wc := range wcs {
				if wc.WRID != oldest {
					t.Fatalf("completion %d, want %d", wc.WRID, oldest)
				}
				oldest++
			}
		}
		for range fewEntries {
			push()
		}
		poll(taken)
		for push() {
		}
		if n := int(next - oldest); n != limit || c.d.counters[CQOverrun].Load() != 1 {
			t.Fatalf("room for %d, want %d", n, limit)
		}
		poll(limit)
	}
}

// TestHandlerOnlyWhenArmed: the handler of a completion queue is called once for each ReqNotify.
func TestHandlerOnlyWhenArmed(t *testing.T) {
	d := &Device{}
	c := &cq{d: d, handler: func(verbs.CQ) {}, ring: make([]verbs.WC, fewEntries), limit: fewEntries}
	for i, want := range []int{0, 1, 1} {
		if c.push(&verbs.WC{}); len(d.calls) != want {
			t.Errorf("%d calls after %d completions, want %d", len(d.calls), i+1, want)
		}
		if i == 0 && !c.ReqNotify() {
			t.Error("a completion that came before isn't reported")
		}
	}
	silent := &cq{d: &Device{}, ring: make([]verbs.WC, fewEntries), limit: fewEntries}
	silent.ReqNotify()
	if silent.push(&verbs.WC{}); len(silent.d.calls) != 0 {
		t.Error("a handler that there isn't is to be called")
	}
}
