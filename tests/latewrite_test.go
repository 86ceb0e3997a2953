package tests

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestLateWrites: what a host sent to a stopped target isn't executed when that continues, if the host has given the
// target up meanwhile: it may have written the same blocks over another path, or to another target.
func TestLateWrites(t *testing.T) {
	t.Parallel()
	for _, path := range localPaths {
		t.Run(path, func(t *testing.T) { testLateWrites(t, path) })
	}
}

// stopped reports whether a process is stopped.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	stat := readFile(t, fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "T")
}

func testLateWrites(t *testing.T, path string) {
	const writes, size = 64, 4096
	file := filepath.Join(t.TempDir(), "disk.img")
	writeFile(t, file, make([]byte, writes*size))
	args := []string{"--volume", "file:" + file}
	if path == "rdma-memory" {
		args = append(args, "--local-memory")
	}
	tgt := startTarget(t, args...)
	h := dialHost(t, tgt.remote(), path, func(c *host.Config) { c.Queues, c.KATO = 1, 2*time.Second })
	ns := h.namespace(t, 1)
	writeBlock(t, t.Context(), ns, 0)
	tgt.signal(syscall.SIGSTOP)
	eventually(t, 10*time.Second, "the target stopped", func() bool { return stopped(t, tgt.pid()) })
	old, err := h.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	copy(old, bytes.Repeat([]byte{'o'}, size))
	ended := make(chan struct{}, writes)
	reqs := make([]host.Request, writes)
	for i := range reqs {
		r := &reqs[i]
		r.Cmd.SetIO(nvme.OpWrite, 1, uint64(i*size/ns.BlockSize()), uint32(size/ns.BlockSize()), 0)
		r.Data = old
		r.Done = func(*host.Request) { ended <- struct{}{} }
		h.Queues()[0].SubmitOne(r)
	}
	for range reqs {
		if _, ok := soon.Receive(ended); !ok {
			t.Fatal("a write to a target that stands still doesn't end")
		}
	}
	h.Abandon()
	want := bytes.Repeat([]byte{'n'}, writes*size)
	writeFile(t, file, want) // as another target of the same volume does
	tgt.signal(syscall.SIGCONT)
	again := dialHost(t, tgt.remote(), path, nil)
	if _, err := again.namespace(t, 1).ReadAt(t.Context(), make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	again.close(t)
	tgt.stop(t)
	got := readFile(t, file)
	late := 0
	for i := range writes {
		if !bytes.Equal(got[i*size:][:size], want[i*size:][:size]) {
			late++
		}
	}
	if late > 0 {
		t.Errorf("%d of %d writes that the host had given up were executed", late, writes)
	}
}
