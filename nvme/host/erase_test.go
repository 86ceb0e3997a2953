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

// TestEraseArguments: what a command can't carry isn't cut down to an erasure that nobody asked for.
func TestEraseArguments(t *testing.T) {
	f := newFakeTarget()
	f.identity.OACS |= nvme.OACSFormat
	f.identity.SANICAP |= nvme.SANICAPBlock
	c := connect(t, f)
	defer closeController(t, c)
	f.setHook(func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if o := r.Cmd.Opcode(); o == nvme.OpFormat || o == nvme.OpSanitize {
			t.Errorf("sent: %x", r.Cmd)
		}
		return usual
	})
	for name, err := range map[string]error{
		"LBA format 64":       c.Format(t.Context(), 1, 64, nvme.EraseNone),
		"LBA format -64":      c.Format(t.Context(), 1, -64, nvme.EraseNone),
		"secure erase":        c.Format(t.Context(), 1, 0, 8|nvme.EraseUser),
		"action":              c.Sanitize(t.Context(), 8|nvme.SanitizeBlockErase, 0, 1, 0),
		"action in flags":     c.Sanitize(t.Context(), nvme.SanitizeBlockErase, uint32(nvme.SanitizeOverwrite), 1, 0),
		"no pass":             c.Sanitize(t.Context(), nvme.SanitizeOverwrite, 0, 0, 0),
		"passes in flags":     c.Sanitize(t.Context(), nvme.SanitizeOverwrite, 2<<4, 1, 0),
		"more than 16 passes": c.Sanitize(t.Context(), nvme.SanitizeOverwrite, 0, 17, 0),
	} {
		if !errors.Is(err, ErrRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
