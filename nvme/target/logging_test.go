package target

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestLogTells: the log says who connected, who left and why, and who was refused.
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

// TestLogOfStrangers: names from hosts that aren't accepted don't control the terminal that shows the log. JSON leaves
// characters beyond ASCII as they are.
func TestLogOfStrangers(t *testing.T) {
	var out bytes.Buffer
	tg := newTargetWith(t, func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(&out, nil)) })
	for _, off := range []int{nvme.ConnectDataOffSUBNQN, nvme.ConnectDataOffHOSTNQN} {
		data := connectData(t, nvme.CNTLIDDynamic, testNQN)
		setName(data, off, "nqn.\u009b2J\u202e\x1b[2J")
		dial(t, tg).fails(connectCommand(0, 31, 0), data, connectInvalid)
	}
	if said := out.String(); strings.Count(said, "nqn.?2J??[2J") != 2 || strings.ContainsAny(said, "\u009b\u202e\x1b") {
		t.Errorf("the log has\n%q", said)
	}
}

// TestLogTellsLostFromLeft: a host that closes its connections without a shutdown counts as lost.
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
		lost := uint64(1)
		if shutdown {
			lost = 0
		}
		if n := tg.Snapshot().Transports[0].LostHosts; n != lost {
			t.Errorf("shutdown %v: %d hosts lost are counted", shutdown, n)
		}
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), ErrNoShutdown.Error()) == shutdown {
			t.Errorf("shutdown %v: want %s in\n%s", shutdown, want, out.String())
		}
	}
}

// TestLogTellsLetGo: a host that Drain disconnects isn't lost, even if it closes its other connections before Drain
// does.
func TestLogTellsLetGo(t *testing.T) {
	var out bytes.Buffer
	tg := newTargetWith(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&out, nil)) })
	s := connect(t, tg, testNQN)
	tg.mu.Lock()
	tg.draining = true // as Drain does, before it disconnects anybody
	tg.mu.Unlock()
	s.close()
	if said := out.String(); !strings.Contains(said, "level=INFO msg=\"host disconnected\"") || !strings.Contains(said, ErrDraining.Error()) {
		t.Errorf("the log has\n%s", said)
	}
}

// Messages name their connection, controller, queue and command with the same keys, and values that are readable in
// JSON too.
func TestLogIdentifies(t *testing.T) {
	var out bytes.Buffer
	v := newTestVolume(1<<20, 512)
	tg := newTargetWith(t, func(c *Config) {
		c.Log = slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}, v)
	s := connect(t, tg, testNQN)
	v.setFail(v.info.Fail(blockdev.OpRead, 4096, blockdev.ErrMedium, nil))
	cmd := readCommand(8)
	cmd.SetCID(77)
	s.io.do(cmd, make([]byte, 4096))
	s.admin.fails(command(func(c *nvme.Command) { c.SetOpcode(0xc0); c.SetFlags(nvme.FlagsSGL) }), nil, nvme.StatusInvalidOpcode|dnr)
	s.close()
	found := map[string]map[string]any{}
	for line := range bytes.Lines(out.Bytes()) {
		m := map[string]any{}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		found[m["msg"].(string)+fmt.Sprint(m["qid"])] = m
	}
	for msg, keys := range map[string]map[string]any{
		"host connected<nil>":    {"transport": "tcp", "remote": "127.0.0.2:40000", "subsystem": testNQN, "host": testHost, "cntlid": float64(s.cntlid)},
		"I/O error of a volume1": {"transport": "tcp", "remote": "127.0.0.2:40000", "cntlid": float64(s.cntlid), "cid": 77.0, "opcode": "Read", "nsid": 1.0},
		"command failed1":        {"cid": 77.0, "opcode": "Read", "status": nvme.StatusUnrecoveredRead.String()},
		"command failed0":        {"cntlid": float64(s.cntlid), "host": testHost},
	} {
		for k, want := range keys {
			if got := found[msg][k]; got != want {
				t.Errorf("%s: %s is %v, want %v", msg, k, got, want)
			}
		}
	}
}
