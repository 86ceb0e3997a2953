package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/cli/clitest"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestGrownVolume: a configuration saved after a volume has grown can be started; in the meantime the program's
// original file, and any with the new size or one between, can be applied in any order, and no others.
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
	}{{mib, true}, {3 * mib, false}, {2 * mib, true}, {mib, true}, {mib / 2, false}, {3 * mib / 2, true}} {
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

// TestStatedSizes: a file that begins to say, or no longer says, which size a volume and its blocks have changes
// nothing, unless it says another.
func TestStatedSizes(t *testing.T) {
	const mib = 1 << 20
	path := filepath.Join(t.TempDir(), "disk.img")
	cfg := func(size, block cli.Size) *config.Config {
		return &config.Config{Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a", Namespaces: []config.Namespace{
			{Volume: path, Size: size, BlockSize: block},
		}}}}
	}
	s := started(t, cfg(mib, 0), freeEndpoint(t))
	defer s.close()
	for _, x := range []struct {
		size, block cli.Size
		ok          bool
	}{{0, 0, true}, {0, 4096, true}, {mib, 4096, true}, {2 * mib, 4096, false}, {mib, 512, false}, {mib, 0, true}, {0, 512, false}} {
		next := cfg(x.size, x.block)
		next.Listen = s.cfg.Listen
		if err := s.Apply(next, ""); (err == nil) != x.ok {
			t.Errorf("with a size of %d and blocks of %d: %v", x.size, x.block, err)
		}
	}
}

// TestChangesLogged: successful changes over the control socket are logged; errors are returned there.
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

// TestSavesMeet: of saves that run at the same time, none puts back what was before a change that another has saved.
func TestSavesMeet(t *testing.T) {
	s := started(t, &config.Config{Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}}}, freeEndpoint(t))
	defer s.close()
	s.file = filepath.Join(t.TempDir(), "target.yaml")
	const host = "nqn.2026-11.org.example:host%d"
	var applied, saving atomic.Int32
	var saves sync.WaitGroup
	for range 4 {
		saving.Add(1)
		saves.Go(func() {
			defer saving.Add(-1)
			for range 50 {
				before, now := applied.Load(), int32(0)
				if err := s.Save(); err != nil {
					t.Error(err)
				} else if saved, err := config.Load(s.file); err != nil {
					t.Error(err)
				} else if hosts := saved.Subsystems[0].Hosts; len(hosts) > 0 {
					_, _ = fmt.Sscanf(hosts[0], host, &now)
				}
				if now < before {
					t.Errorf("change %d was made before a save, and %d is saved", before, now)
				}
			}
		})
	}
	for i := int32(1); saving.Load() > 0; i++ {
		next := s.cfg.Clone()
		next.Subsystems[0].Hosts = []string{fmt.Sprintf(host, i)}
		if err := s.Apply(next, ""); err != nil {
			t.Error(err)
		}
		applied.Store(i)
	}
	saves.Wait()
}

// TestStopWhileReloading: a configuration file that is a pipe to which nobody writes any more doesn't prevent the
// program from stopping after SIGHUP.
func TestStopWhileReloading(t *testing.T) {
	s := started(t, &config.Config{Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}}}, freeEndpoint(t))
	s.file = clitest.NewPipe(t)
	s.reloadOn(cli.Hangups(t.Context()))
	if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	w := clitest.AwaitReader(t, s.file)
	closed := make(chan struct{})
	go func() { s.close(); close(closed) }()
	if _, ok := soon.Receive(closed); !ok {
		t.Error("it waits for the pipe")
	}
	w.Close() // this ends the read
	<-closed
}

// TestSecretsFromPipe: a target that starts reads secrets from a pipe, which gives them once.
func TestSecretsFromPipe(t *testing.T) {
	pipe := clitest.NewPipe(t)
	cfg := &config.Config{
		Listen:         []cli.Endpoint{freeEndpoint(t)},
		Subsystems:     []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}},
		Authentication: &config.Authentication{Secrets: pipe},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &server{log: slog.New(slog.DiscardHandler), starting: ctx}
	defer s.close()
	ready := make(chan error, 1)
	go func() { ready <- start(cfg, s) }()
	w := clitest.AwaitReader(t, pipe)
	if _, err := io.WriteString(w, staysNQN+" DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err, ok := soon.Receive(ready); !ok || err != nil {
		t.Errorf("it starts: %v, %v", ok, err)
		if cancel(); !ok {
			<-ready
		}
	} else if h := s.auth.Hosts[staysNQN]; h.Host == nil {
		t.Errorf("it knows the secrets of %v", s.auth.Hosts)
	}
}

// TestHangupWhileStarting: a target that is told to read its file again before it is ready does so when it is.
func TestHangupWhileStarting(t *testing.T) {
	pipe, at := clitest.NewPipe(t), freeEndpoint(t)
	cfg := &config.Config{
		Listen: []cli.Endpoint{at}, Authentication: &config.Authentication{Secrets: pipe},
		Subsystems: []config.Subsystem{{NQN: "nqn.2026-11.org.example:a"}},
	}
	file := filepath.Join(t.TempDir(), "target.yaml")
	if err := os.WriteFile(file, []byte("listen: ["+at.String()+"]\nsubsystems: [{nqn: nqn.2026-11.org.example:a}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	said, stderr := io.Pipe()
	ended, reloaded := make(chan error, 1), make(chan bool, 1)
	go func() {
		ended <- serve(ctx, cfg, file, io.Discard, stderr)
		stderr.Close()
	}()
	go func() {
		for lines := bufio.NewScanner(said); lines.Scan(); {
			if strings.Contains(lines.Text(), "msg=reloaded") {
				reloaded <- true
			}
		}
	}()
	w := clitest.AwaitReader(t, pipe)
	if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	w.Close() // no secrets
	if _, ok := soon.Receive(reloaded); !ok {
		t.Error("it doesn't read its file again")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestLookWhileRemoving: a namespace whose volume doesn't answer takes long to remove. In the meantime the target
// can be inspected and changed, and the volume can be made to answer.
func TestLookWhileRemoving(t *testing.T) {
	const nqn = "nqn.2026-11.org.example:a"
	s := started(t, &config.Config{Subsystems: []config.Subsystem{{NQN: nqn, Namespaces: []config.Namespace{
		{Volume: "freeze:manual:mem:1MiB"}, {Volume: "mem:1MiB"},
	}}}}, freeEndpoint(t))
	defer s.close()
	h, err := come(t, s.cfg.Listen[0], staysNQN, func(c *host.Config) { c.SubNQN = nqn })
	if err != nil {
		t.Fatal(err)
	}
	n, err := h.Namespace(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	next := s.cfg.Clone()
	next.Subsystems[0].Namespaces = next.Subsystems[0].Namespaces[1:]
	frozen := s.exports[exportKey{nqn, 1}].volume
	s.toggle(frozen)
	read, removed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := n.ReadAt(t.Context(), make([]byte, 4096), 0)
		read <- err
	}()
	for s.target.Snapshot().Subsystems[0].Controllers[0].Queues[1].InFlight == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() { removed <- s.Apply(next, "") }()
	for len(s.target.Snapshot().Subsystems[0].Namespaces) == 2 {
		time.Sleep(time.Millisecond)
	}
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		s.Status()
		s.Config()
		_ = s.exported()
		other, tag := s.Config()
		for len(other.Subsystems[0].Namespaces) == 2 { // hosts lose the namespace before the change is complete
			time.Sleep(time.Millisecond)
			other, tag = s.Config()
		}
		other.Subsystems = append(other.Subsystems, config.Subsystem{NQN: "nqn.2026-11.org.example:b", Namespaces: []config.Namespace{{Volume: "mem:1MiB"}}})
		if err := s.Apply(other, tag); err != nil {
			t.Errorf("another change: %v", err)
		}
		if len(removed) > 0 {
			t.Error("removed while its volume is used")
		}
		for _, v := range s.volumes() {
			s.toggle(v)
		}
	}()
	if _, ok := soon.Receive(looked); !ok {
		t.Error("who looks waits for the volume")
		s.toggle(frozen)
	}
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
	if n := len(s.volumes()); n != 2 {
		t.Errorf("%d volumes are open", n)
	}
}
