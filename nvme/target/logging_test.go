package target

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestLogRate: a flood of messages is bounded, and what was left out is counted.
func TestLogRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &limitedLog{log: slog.New(slog.NewTextHandler(&out, nil))}
		for range 3 * logBurst {
			l.info("again")
		}
		if n := strings.Count(out.String(), "again"); n != logBurst {
			t.Errorf("%d messages, want %d", n, logBurst)
		}
		out.Reset()
		time.Sleep(time.Second)
		for range 2 * logRate {
			l.warn("later")
		}
		if n := strings.Count(out.String(), "later"); n != logRate || !strings.Contains(out.String(), "messages_left_out=200") {
			t.Errorf("%d messages, want %d and the number left out:\n%s", n, logRate, out.String())
		}
	})
}

// TestLogTells: who came, who went and why, and who was refused.
func TestLogTells(t *testing.T) {
	var out bytes.Buffer
	tg := newTargetWith(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&out, nil)) })
	q := dial(t, tg)
	q.fails(connectCommand(0, 31, 0), connectData(t, 1, testNQN), nvme.StatusConnectInvalidParameter|dnr)
	connectAdmin(q, testNQN, 5000)
	q.hangUp(errLost)
	for _, want := range []string{"Connect refused: controller 1 asked for", "host connected", testHost, "kato=5s",
		"host disconnected", "reason=\"connection lost\""} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
