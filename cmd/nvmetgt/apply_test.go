package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/config"
)

var errClose = errors.New("no room for the last writes")

// unclosable is a volume whose Close fails.
type unclosable struct{ blockdev.Volume }

func (v unclosable) Close() error { return errors.Join(v.Volume.Close(), errClose) }

// A namespace is gone when it is removed, whatever closing its volume says: an error would have who asked believe that
// nothing changed. The log has it.
func TestRemoveNamespaceThatFailsToClose(t *testing.T) {
	const nqn = "nqn.2026-11.org.example:a"
	cfg := &config.Config{Subsystems: []config.Subsystem{{NQN: nqn, Namespaces: []config.Namespace{
		{NSID: 1, Volume: "mem:1MiB"}, {NSID: 2, Volume: "mem:1MiB"},
	}}}}
	var log bytes.Buffer
	s := &server{log: slog.New(slog.NewTextHandler(&log, nil))}
	defer s.close()
	if err := start(cfg, s); err != nil {
		t.Fatal(err)
	}
	e := s.exports[exportKey{nqn, 2}]
	e.volume = unclosable{e.volume}
	next := s.cfg.Clone()
	next.Subsystems[0].Namespaces = next.Subsystems[0].Namespaces[:1]
	if err := s.become(next); err != nil {
		t.Errorf("become: %v", err)
	}
	if n := len(s.target.Snapshot().Subsystems[0].Namespaces); n != 1 {
		t.Errorf("there are %d namespaces, want 1", n)
	}
	if !strings.Contains(log.String(), errClose.Error()) {
		t.Errorf("the log doesn't say why: %s", log.String())
	}
}
