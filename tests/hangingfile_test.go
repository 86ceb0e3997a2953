package tests

import (
	"bytes"
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/disktest"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// A write that hangs in the system, whatever goroutine makes it, blocks no other volume, neither for the host that
// wrote, on the same queue, nor for another.
func TestHangingFile(t *testing.T) {
	t.Parallel()
	for _, io := range []string{"buffered", "uring", "direct"} {
		for _, path := range []string{"rdma", "tcp"} {
			t.Run(io+"/"+path, func(t *testing.T) { testHangingFile(t, io, path) })
		}
	}
	// A goroutine that receives captured packets isn't given other work.
	t.Run("direct/rdma/captured", func(t *testing.T) {
		testHangingFile(t, "direct", "rdma", "--pcap", filepath.Join(t.TempDir(), "packets.pcap"))
	})
}

func testHangingFile(t *testing.T, io, path string, flags ...string) {
	needIO(t, io)
	dir := disktest.Mount(t, disktest.Image(t, 32<<20), "mkfs.ext4", "-q")
	t.Cleanup(func() { // the ring of a program that has ended may hold its files for a moment
		soon.Until(func() bool { return unix.Unmount(dir, 0) == nil })
	})
	freeze, thaw := disktest.Freezer(t, dir)
	slow, fast := filepath.Join(dir, "slow"), filepath.Join(t.TempDir(), "fast")
	for _, file := range []string{slow, fast} {
		writeFile(t, file, make([]byte, 1<<20))
	}
	tgt := startTarget(t, append(flags, "--io", io, "--volume", "file:"+slow, "--volume", "file:"+fast)...)
	defer tgt.stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), cliTimeout)
	defer cancel()
	one := dialHost(t, tgt.remote(), path, func(c *host.Config) { c.Queues = 1 })
	defer one.close(t)
	hanging, other := one.namespace(t, 1), one.namespace(t, 2)
	for i := range 100 { // enough to settle which goroutine does such writes
		writeBlock(t, ctx, hanging, i)
		writeBlock(t, ctx, other, i)
	}
	freeze()
	hung := make(chan error, 1)
	go func() {
		_, err := hanging.WriteAt(ctx, bytes.Repeat([]byte{0xee}, 4096), 0)
		hung <- err
	}()
	two := dialHost(t, tgt.remote(), path, func(c *host.Config) { c.Queues = 1 })
	defer two.close(t)
	another := two.namespace(t, 2)
	began := time.Now()
	for i := range 100 {
		writeBlock(t, ctx, other, i)
		writeBlock(t, ctx, another, 100+i)
	}
	t.Logf("200 writes elsewhere took %v meanwhile", time.Since(began))
	select {
	case err := <-hung:
		t.Fatalf("a write to a frozen file system ended: %v", err)
	default:
	}
	thaw()
	if err := <-hung; err != nil {
		t.Errorf("the write that hung: %v", err)
	}
	b := make([]byte, 4096)
	if _, err := hanging.ReadAt(ctx, b, 0); err != nil || b[0] != 0xee || b[4095] != 0xee {
		t.Errorf("what was written while it hung isn't there: %v", err)
	}
}

func writeBlock(t *testing.T, ctx context.Context, ns *host.Namespace, i int) {
	t.Helper()
	if _, err := ns.WriteAt(ctx, bytes.Repeat([]byte{byte(i)}, 4096), int64(i)*4096); err != nil {
		t.Fatal(err)
	}
}

// A host that loses its connections during a write on a volume that hangs reconnects at once, and uses the other
// namespaces; its later writes to that volume come after the old one.
func TestHangingVolumeReconnect(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"rdma", "tcp"} {
		t.Run(path, func(t *testing.T) {
			tgt := startTarget(t, "--volume", "freeze:manual:mem:1MiB", "--volume", "mem:1MiB")
			defer tgt.stop(t)
			ctx, cancel := context.WithTimeout(t.Context(), cliTimeout)
			defer cancel()
			tgt.signal(syscall.SIGUSR1)
			waitText(t, &tgt.stderr, "frozen=true")
			written := make(chan error, 3)
			write := func(ns *host.Namespace, value byte) {
				_, err := ns.WriteAt(ctx, bytes.Repeat([]byte{value}, 4096), 0)
				written <- err
			}
			for i := range byte(3) { // the second finds what the first left, and leaves nothing, as the third
				one := dialHost(t, tgt.remote(), path, func(c *host.Config) { c.Queues, c.HostID = 1, nvme.HostID{18} })
				for j := range 10 {
					writeBlock(t, ctx, one.namespace(t, 2), j)
				}
				go write(one.namespace(t, 1), i)
				if i < 2 {
					n := one.Queues()[0].Counters()
					eventually(t, cliTimeout, "the write to be sent", func() bool { return n.Submitted.Load() > n.Completed.Load() })
					writeBlock(t, ctx, one.namespace(t, 2), 0) // behind it
					gone, hangUp := context.WithCancel(ctx)
					hangUp()
					_ = one.Shutdown(gone)
					if err := <-written; err == nil {
						t.Fatal("a write to a frozen volume succeeded")
					}
				} else {
					waitText(t, &tgt.stderr, "commands of a host wait")
					select {
					case err := <-written:
						t.Fatalf("a write to a frozen volume ended: %v", err)
					default:
					}
					tgt.signal(syscall.SIGUSR1)
					if err := <-written; err != nil {
						t.Error(err)
					}
					b := make([]byte, 4096)
					if _, err := one.namespace(t, 1).ReadAt(ctx, b, 0); err != nil || b[0] != i {
						t.Errorf("the block has %d, not what was written last: %v", b[0], err)
					}
					one.close(t)
				}
			}
		})
	}
}
