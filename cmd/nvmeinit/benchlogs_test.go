package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/fio"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestLogPipe: a log may be a pipe. Its reader isn't told that it ends before there is anything to read, and
// nobody waits long for a reader once the run is interrupted.
func TestLogPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "mine")
	pipe := name + "_iops.1.log"
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	j := fio.NewJob("bench")
	if err := errors.Join(j.Set("rw", "read"), j.Set("write_iops_log", name)); err != nil {
		t.Fatal(err)
	}
	jobs := []*fio.Job{j}
	res := &loadgen.Result{Jobs: []loadgen.JobResult{{Spec: &j.Spec, Windows: []loadgen.Window{{End: time.Second, Length: time.Second}}}}}
	r, err := unix.Open(pipe, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := createLogs(jobs); err != nil {
		t.Error(err)
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(r), Events: unix.POLLIN}}, 0); n != 0 || err != nil {
		t.Errorf("a reader is told of the end before it has read anything: %v", err)
	}
	unix.Close(r)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	ended := make(chan error, 1)
	go func() { ended <- writeLogs(ctx, jobs, res) }()
	if err, ok := soon.Receive(ended); !ok || !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted without a reader: ended %v, %v", ok, err)
	}
	if log, err := os.ReadFile(pipe); err != nil || string(log) != "1000, 0, 0, 0, 0\n" { // the abandoned write goes on
		t.Errorf("a reader that comes late gets %q, %v", log, err)
	}
}
