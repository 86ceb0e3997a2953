package main

import (
	"bytes"
	"context"
	"errors"
	"log"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
)

// blockable fails to take messages while it is blocked.
type blockable struct {
	bytes.Buffer
	blocked bool
}

func (b *blockable) Write(p []byte) (int, error) {
	if b.blocked {
		return 0, errors.New("blocked")
	}
	return b.Buffer.Write(p)
}

// The first message that standard error takes after it has lost some says how many, once, in either format.
func TestLostMessages(t *testing.T) {
	for _, cfg := range []config.Log{{}, {JSON: true}} {
		var w blockable
		log := newLogger(cfg, &w)
		w.blocked = true
		log.Info("lost")
		log.With("key", 1).Warn("lost")
		log.WithGroup("group").Error("lost")
		w.blocked = false
		log.Info("taken")
		log.Info("taken")
		lines := strings.Split(strings.TrimSpace(w.String()), "\n")
		says := "messages_lost=3"
		if cfg.JSON {
			says = `"messages_lost":3`
		}
		if len(lines) != 2 || !strings.Contains(lines[0], says) || strings.Contains(lines[1], "messages_lost") {
			t.Errorf("the log is\n%s", w.String())
		}
	}
}

// What libraries log is in the target's log, in its format.
func TestLibrariesLog(t *testing.T) {
	before, flags := log.Writer(), log.Flags()
	defer func() { log.SetOutput(before); log.SetFlags(flags) }()
	cfg := &config.Config{
		Log: config.Log{JSON: true}, Listen: []cli.Endpoint{freeEndpoint(t)},
		Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}},
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var stderr bytes.Buffer
	ready := writerFunc(func(b []byte) (int, error) {
		log.Print("out of descriptors")
		stop()
		return len(b), nil
	})
	if err := serve(ctx, cfg, "", ready, &stderr); err != nil {
		t.Fatal(err)
	}
	if want := `"level":"WARN","msg":"out of descriptors"}`; !strings.Contains(stderr.String(), want) {
		t.Errorf("the log is\n%s; want %s", stderr.String(), want)
	}
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
