package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
)

// TestGrownVolume: what is saved after a volume has grown can be started with; the program's file as it was, and one that
// says the new size, can be applied meanwhile, and no other.
func TestGrownVolume(t *testing.T) {
	const mib = 1 << 20
	path := filepath.Join(t.TempDir(), "disk.img")
	cfg := func(size cli.Size) *config.Config {
		return &config.Config{Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a", Namespaces: []config.Namespace{
			{Volume: path, Size: size}, {Volume: "mem:1MiB"},
		}}}}
	}
	at := freeEndpoint(t)
	s := started(t, cfg(mib), at)
	if err := os.Truncate(path, 2*mib); err != nil {
		t.Fatal(err)
	}
	for _, v := range s.volumes() {
		if r, ok := v.(blockdev.Resizer); ok {
			if err := r.Refresh(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, x := range []struct {
		size cli.Size
		ok   bool
	}{{mib, true}, {3 * mib, false}, {2 * mib, true}} {
		next := cfg(x.size)
		next.Listen = s.cfg.Listen
		if err := s.Apply(next, ""); (err == nil) != x.ok {
			t.Errorf("with a size of %d MiB: %v", x.size/mib, err)
		}
	}
	saved, _ := s.Config()
	if n := saved.Subsystems[0].Namespaces; n[0].Size != 2*mib || n[1].Size != 0 {
		t.Errorf("it says sizes %d and %d, want that of now and none", n[0].Size, n[1].Size)
	}
	s.close()
	started(t, saved, at).close()
}

// TestChangesLogged: the log says what comes by the control socket and succeeds; errors are told there.
func TestChangesLogged(t *testing.T) {
	s := started(t, &config.Config{Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}}}, freeEndpoint(t))
	defer s.close()
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	s.file = filepath.Join(t.TempDir(), "target.yaml")
	next := s.cfg.Clone()
	next.Subsystems[0].Namespaces = []config.Namespace{{Volume: "mem:1MiB"}}
	if err := s.Apply(next, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`msg="the configuration is changed" endpoints=1 subsystems=1 namespaces=1`, `msg="the configuration is saved" file=` + s.file} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no line %s: %s", want, log.String())
		}
	}
}
