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
		"host lost", "reason=\"connection lost\""} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestLogTellsLostFromLeft: a host that closes its connections without a shutdown was lost.
func TestLogTellsLostFromLeft(t *testing.T) {
	for _, shutdown := range []bool{true, false} {
		var out bytes.Buffer
		tg := newTargetWith(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&out, nil)) })
		s := connect(t, tg, testNQN)
		want := "level=WARN msg=\"host lost\""
		if shutdown {
			s.admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable|nvme.CCSHNNormal)), nil)
			want = "level=INFO msg=\"host disconnected\""
		}
		s.close()
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), ErrNoShutdown.Error()) == shutdown {
			t.Errorf("shutdown %v: want %s in\n%s", shutdown, want, out.String())
		}
	}
}
