package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
	"github.com/nvme-anywhere/nvmeof/persist"
)

// A path that is given to ctl is relative to where ctl runs; what isn't a path stays unchanged.
func TestAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("a:colon", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]string{
		"disk.img":                              "DIR/disk.img",
		"./disk.img":                            "DIR/disk.img",
		"../disk.img":                           filepath.Dir(dir) + "/disk.img",
		"/disk.img":                             "/disk.img",
		"file:disk.img":                         "file:DIR/disk.img",
		"pmem:disk.img,mode=inplace":            "pmem:DIR/disk.img,mode=inplace",
		"delay:1ms:check:pmem:disk.img":         "delay:1ms:check:pmem:DIR/disk.img",
		"fail:read@1:disk.img":                  "fail:read@1:DIR/disk.img",
		"a:colon":                               "DIR/a:colon",
		"dir/b:colon":                           "DIR/dir/b:colon",
		"mem:1GiB":                              "mem:1GiB",
		"delay:1ms:null:1TiB":                   "delay:1ms:null:1TiB",
		"men:1GiB" /* misspelt, and no file */ : "men:1GiB",
		"pmem:":                                 "pmem:",
		"delay:1ms":                             "delay:1ms",
	} {
		got, err := absolute(spec)
		if want := strings.Replace(want, "DIR", dir, 1); err != nil || got != want {
			t.Errorf("absolute(%q) is %q, %v; want %q", spec, got, err, want)
		}
	}
}

// TestNoSuchFile: the error says how to create the file in terms of the configuration's source, flags or a file.
func TestNoSuchFile(t *testing.T) {
	t.Chdir(t.TempDir())
	for mark, want := range map[string]string{
		"":   "volume nope.img: no such file: check the name, or create it with a size, as size: 1GiB",
		"--": "--volume nope.img: no such file: check the name, or create it with a size, as --size 1GiB",
	} {
		s := &server{mark: mark}
		if _, err := s.openExport(exportKey{}, &config.Namespace{Volume: "nope.img"}); err == nil || err.Error() != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// TestVolumeOfAnotherNamespace: who moves a volume to another namespace in one change is told where it is, and what to
// do first; and who adds it again before a command of the removed namespace has ended, what to wait for.
func TestVolumeOfAnotherNamespace(t *testing.T) {
	const nqn = "nqn.2026-11.org.example:a"
	path := filepath.Join(t.TempDir(), "disk.img")
	cfg := func(nsid uint32, volume string) *config.Config {
		return &config.Config{Subsystems: []config.Subsystem{{NQN: nqn, Namespaces: []config.Namespace{{NSID: nsid, Volume: volume, Size: 1 << 20}}}}}
	}
	at := freeEndpoint(t)
	s := started(t, cfg(1, "freeze:manual:"+path), at)
	defer s.close()
	if err := os.Symlink(path, path+".link"); err != nil {
		t.Fatal(err)
	}
	refused := func(next *config.Config, says string) {
		t.Helper()
		next.Listen = []cli.Endpoint{at}
		if err := s.Apply(next, ""); !errors.Is(err, blockdev.ErrBusy) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
	for _, volume := range []string{path, "check:" + path + ".link"} {
		refused(cfg(2, volume), "namespace 1 of "+nqn+" has it; name another file, or remove that namespace first")
	}
	e := s.exports[exportKey{nqn, 1}]
	s.toggle(e.volume)
	ended := make(chan struct{})
	e.volume.Submit(&blockdev.Request{Op: blockdev.OpFlush, Complete: func(*blockdev.Request) { close(ended) }})
	next := cfg(3, "mem:1MiB")
	next.Subsystems[0].Namespaces[0].Size, next.Listen = 0, []cli.Endpoint{at}
	gone, err := s.apply(next, "")
	if err != nil {
		t.Fatal(err)
	}
	again := cfg(1, path)
	again.Subsystems[0].Namespaces = append(again.Subsystems[0].Namespaces, next.Subsystems[0].Namespaces...)
	refused(again, "a namespace that was removed has it")
	s.toggle(e.volume)
	<-ended
	<-gone
	if err := s.Apply(again, ""); err != nil {
		t.Errorf("when the command has ended: %v", err)
	}
}

// TestNoLocks: on a file system without locks, such as Lustre's and NFS's with some options, the error says what is missing.
func TestNoLocks(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	t.Chdir(t.TempDir())
	sandbox.Refuse(t, unix.SYS_FLOCK, unix.ENOLCK)
	const want = "--volume disk.img: lock: no locks available: its lock keeps other programs out; mount the file system with locks"
	s := &server{mark: "--"}
	if _, err := s.openExport(exportKey{}, &config.Namespace{Volume: "disk.img", Size: 1 << 20}); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v; want %s", err, want)
	}
}

// TestPmemAsFile: a user who exports persistent memory as a plain file, which hosts could only destroy, is warned.
func TestPmemAsFile(t *testing.T) {
	dir := t.TempDir()
	kept, plain := filepath.Join(dir, "kept.img"), filepath.Join(dir, "plain.img")
	v, err := persist.Open(kept, blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	const nqn = "nqn.2026-11.org.example:a"
	s := started(t, &config.Config{Subsystems: []config.Subsystem{{NQN: nqn}}}, freeEndpoint(t))
	defer s.close()
	for _, x := range []struct {
		n    config.Namespace
		warn bool
	}{
		{config.Namespace{Volume: kept}, true},
		{config.Namespace{Volume: "pmem:" + kept}, false},
		{config.Namespace{Volume: plain, Size: 1 << 20}, false},
	} {
		var log bytes.Buffer
		s.log = slog.New(slog.NewTextHandler(&log, nil))
		e, err := s.openExport(exportKey{nqn, 1}, &x.n)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.close(); err != nil {
			t.Error(err)
		}
		if strings.Contains(log.String(), "pmem: before its path") != x.warn {
			t.Errorf("%s: want a warning %v, the log is %q", x.n.Volume, x.warn, log.String())
		}
	}
}

// TestPmemErrors: a command reports as missing only what it could create.
func TestPmemErrors(t *testing.T) {
	dir := t.TempDir()
	link, none := filepath.Join(dir, "link"), filepath.Join(dir, "none")
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{link: "symbolic link to nowhere", none: "--size SIZE creates it"} {
		_, err := persist.Check(path, false)
		if err = pmemError("check", path, err); !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
