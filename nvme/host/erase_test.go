package host

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestFormatTakesLong: a Format has as long as its caller gives it, however little time other commands have. Then it is
// aborted, and the controller stays.
func TestFormatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		f.identity.OACS |= nvme.OACSFormat
		abort := aborting(nvme.OpFormat)
		f.hook = func(q *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			if q.attr.QID == 0 && r.Cmd.Opcode() == nvme.OpFormat {
				return never
			}
			return abort(q, r, cqe)
		}
		c := connect(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		start := time.Now()
		err := c.Format(ctx, 1, 0, nvme.EraseNone)
		if took := time.Since(start); took != 10*time.Minute || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", took, err)
		}
		if n := c.Counters().Aborts.Load(); n != 1 || c.Err() != nil {
			t.Errorf("%d aborts; the controller: %v", n, c.Err())
		}
		closeController(t, c)
	})
}
