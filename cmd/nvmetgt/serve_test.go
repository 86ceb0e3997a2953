package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestStopWhileStarting: a target that is told to stop does so even if the file system keeps it from opening a volume.
func TestStopWhileStarting(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	cfg := &config.Config{
		Listen: []cli.Endpoint{freeEndpoint(t)},
		Subsystems: []config.Subsystem{{
			NQN:        "nqn.2026-11.org.example:a",
			Namespaces: []config.Namespace{{NSID: 1, Volume: filepath.Join(t.TempDir(), "new"), Size: 1 << 20}},
		}},
	}
	awaitSync := sandbox.Hang(t, unix.SYS_FSYNC) // of the new file
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, cfg, "", io.Discard, io.Discard) }()
	awaitSync()
	stop()
	if err, ok := soon.Receive(ended); !ok || !errors.Is(err, context.Canceled) {
		t.Errorf("it ends: %v, with %v", ok, err)
	}
}
