package target

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

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
