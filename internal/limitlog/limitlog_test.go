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
			to := l
			if i%2 == 0 {
				to = l.With("peer", i).WithGroup("g")
			}
			to.Info("again")
			l.Debug("detail")
		}
		if n := strings.Count(out.String(), "again"); n != Burst+OwnBurst {
			t.Errorf("%d messages, want %d", n, Burst+OwnBurst)
		}
		if n := strings.Count(out.String(), "detail"); n != 3*Burst {
			t.Errorf("%d debug messages, want %d", n, 3*Burst)
		}
		if strings.Contains(out.String(), "messages_left_out") {
			t.Errorf("messages are said to be left out before the first that passes after them:\n%s", out.String())
		}
		out.Reset()
		time.Sleep(time.Second)
		for range 2 * Rate {
			l.Info("later")
		}
		if n := strings.Count(out.String(), "later"); n != Rate+OwnBurst || !strings.Contains(out.String(), "messages_left_out=195") {
			t.Errorf("%d messages, want %d and the number left out:\n%s", n, Rate+OwnBurst, out.String())
		}
		// A long silence doesn't let more pass at once.
		for range 2 {
			out.Reset()
			time.Sleep(24 * time.Hour)
			for range 3 * Burst {
				l.Info("again")
			}
			if n := strings.Count(out.String(), "again"); n != Burst+OwnBurst {
				t.Errorf("%d messages after a day, want %d", n, Burst+OwnBurst)
			}
		}
	})
}

// A flood of one kind, such as hosts that connect and go, doesn't hide a message of another kind,
// however long it lasts; nor do several floods together exceed the limit of all by much.
func TestKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&out, nil)))
		const seconds = 60
		for range seconds {
			for range 1000 {
				l.Info("connected")
				l.Info("disconnected")
			}
			l.Error("the disk fails")
			time.Sleep(time.Second)
		}
		if n := strings.Count(out.String(), "the disk fails"); n != seconds {
			t.Errorf("the disk's failure is in the log %d times, want %d", n, seconds)
		}
		floods := strings.Count(out.String(), "connected")
		if most := Burst + Rate*seconds + 2*(OwnBurst+OwnRate*seconds); floods > most {
			t.Errorf("%d messages of the floods, want at most %d", floods, most)
		}
	})
}

func TestNil(t *testing.T) { New(nil).Info("nobody hears it") }
