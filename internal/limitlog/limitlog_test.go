package limitlog

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A flood of messages is limited across everything derived from one log, and messages left out
// are counted.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		for i := range 3 * Burst {
			if i%2 == 0 {
				l.Info("again")
			} else {
				l.With("peer", i).WithGroup("g").Warn("again")
			}
			l.Debug("detail")
		}
		if n := strings.Count(out.String(), "again"); n != Burst {
			t.Errorf("%d messages, want %d", n, Burst)
		}
		if n := strings.Count(out.String(), "detail"); n != 3*Burst {
			t.Errorf("%d debug messages, want %d", n, 3*Burst)
		}
		out.Reset()
		time.Sleep(time.Second)
		for range 2 * Rate {
			l.Warn("later")
		}
		if n := strings.Count(out.String(), "later"); n != Rate || !strings.Contains(out.String(), "messages_left_out=200") {
			t.Errorf("%d messages, want %d and the number left out:\n%s", n, Rate, out.String())
		}
	})
}

func TestNil(t *testing.T) { New(nil).Info("nobody hears it") }
