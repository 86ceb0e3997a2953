package tests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Signal HUP makes a target reread its file, and changes nothing if that is invalid.
func TestHangupReloads(t *testing.T) {
	t.Parallel()
	c := startConfigured(t)
	text := readFile(t, c.file)
	writeText(t, c.file, strings.Replace(string(text), "- {volume: \"mem:16MiB\"}", "- {volume: \"mem:16MiB\"}\n  - {volume: \"mem:3MiB\"}", 1))
	c.signal(syscall.SIGHUP)
	waitText(t, &c.stderr, "msg=reloaded")
	if out := c.must(t, cliTimeout, "tcp", "list", "-n", diskNQN); !strings.Contains(out, "3.0 MiB") {
		t.Errorf("the namespace that the file has now isn't listed:\n%s", out)
	}

	writeText(t, c.file, "subsistems: []\n")
	c.signal(syscall.SIGHUP)
	waitText(t, &c.stderr, "reload failed")
	waitText(t, &c.stderr, c.file+":1: ")
	c.must(t, cliTimeout, "rdma", "connect", "-n", diskNQN)
	c.stop(t)
}

// HUP ends a program without a file to reread, like an interrupt: a target drains, and an incomplete copy leaves no
// file behind.
func TestHangupEnds(t *testing.T) {
	// If this test ignores the signal, as under nohup, programs that it starts do too.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	tgt := startTarget(t, "--volume", "delay:200ms:mem:256MiB")
	copied := filepath.Join(t.TempDir(), "copied")
	reader := tgt.startInit(t, "rdma", "read", "--output", copied)
	eventually(t, cliTimeout, "the copy has begun", func() bool {
		info, err := os.Stat(copied)
		return err == nil && info.Size() > 0
	})
	reader.signal(syscall.SIGHUP)
	if code := reader.wait(t, cliTimeout); code != exitInterrupted {
		t.Errorf("the copy ends with %d, want %d", code, exitInterrupted)
	}
	if _, err := os.Stat(copied); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a part of the copy is left: %v", err)
	}

	tgt.signal(syscall.SIGHUP)
	if code := tgt.wait(t, cliTimeout); code != 0 {
		t.Errorf("the target ends with %d", code)
	}
	if said := tgt.stderr.String(); !strings.Contains(said, "msg=drained\n") {
		t.Errorf("the target says\n%s", said)
	}
}

// TestHoldTells: a program that holds a connection reports namespaces that appear, over either transport.
func TestHoldTells(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tgt := startTarget(t, "--volume", "mem:1MiB", "--control", dir+"/control")
	for i, transport := range transports {
		hold := tgt.startInit(t, transport, "connect", "--hold")
		waitText(t, &hold.stderr, "holding the connection")
		if r := start(t, "nvmetgt", "ctl", "--socket", dir+"/control", "add-namespace", "--volume", "mem:1MiB").result(t, cliTimeout); r.code != 0 {
			t.Fatal(r.stderr)
		}
		waitText(t, &hold.stderr, fmt.Sprintf("namespaces changed: %d\n", i+2))
		hold.release(t)
	}
}
