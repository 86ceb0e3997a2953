package tests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestVolumeReplaced: a target whose volumes lose their files says so, once, and goes on with what it has open.
func TestVolumeReplaced(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t) // a disk may take longer to flush what was written than a host waits
	file, pmem := filepath.Join(dir, "disk.img"), filepath.Join(dir, "pmem.img")
	p := startTarget(t, "--volume", file, "--volume", "pmem:"+pmem, "--size", "8MiB")
	writeText(t, file+".new", "another file")
	if err := errors.Join(os.Rename(file+".new", file), os.Remove(pmem)); err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{file, pmem} {
		says := fmt.Sprintf(`err="refresh %s: invalid volume or request: the file was removed or replaced`, path)
		waitText(t, &p.stderr, says)
		p.must(t, cliTimeout, "rdma", "bench", append(verifyFlags("write"), "--nsid", strconv.Itoa(i+1))...)
		if n := strings.Count(p.stderr.String(), says); n != 1 {
			t.Errorf("it says %q %d times", says, n)
		}
	}
	p.stop(t)
}

// TestVolumeGrows enlarges a file, and then shrinks it, under a running target: connected hosts are notified, and may
// use the new part.
func TestVolumeGrows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "disk.img")
	p := startTarget(t, "--volume", path, "--size", "16MiB")
	for _, transport := range transports {
		changed := make(chan []uint32, 16)
		h := dialHost(t, p.remote(), transport, func(c *host.Config) {
			c.NamespacesChanged = func(_ *host.Controller, nsids []uint32) { changed <- nsids }
		})
		for _, size := range []int64{32 << 20, 16 << 20} {
			if err := os.Truncate(path, size); err != nil {
				t.Fatal(err)
			}
			select {
			case nsids := <-changed:
				if len(nsids) != 1 || nsids[0] != 1 {
					t.Errorf("%s: namespaces %v changed, want 1", transport, nsids)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: nobody told of %d bytes", transport, size)
			}
			ns := h.namespace(t, 1)
			if ns.Size() != size {
				t.Errorf("%s: %d bytes, want %d", transport, ns.Size(), size)
			}
			if _, err := ns.WriteAt(t.Context(), bytes.Repeat([]byte{1}, 4096), size-4096); err != nil {
				t.Errorf("%s: the last block of %d bytes: %v", transport, size, err)
			}
		}
		h.close(t)
	}
	p.stop(t)
	for _, says := range []string{`level=INFO msg="a volume has grown"`, `level=WARN msg="a volume has shrunk`} {
		if log := p.stderr.String(); !strings.Contains(log, says) {
			t.Errorf("nvmetgt doesn't say %s: %s", says, log)
		}
	}
}

// TestVolumeEmptied: a namespace whose file was truncated to nothing still exists, and a host is told what it lacks.
func TestVolumeEmptied(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "disk.img")
	p := startTarget(t, "--volume", path, "--size", "16MiB")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	waitText(t, &p.stderr, "now=0")
	for _, transport := range transports {
		r := p.run(t, cliTimeout, transport, "id-ns")
		checkLine(t, r, "nvmeinit", mistake{code: exitFailure, says: []string{"--nsid 1", "size of 0"}})
	}
	p.stop(t)
}

// memoryDir returns a temporary directory on a tmpfs. Without one the test is skipped.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "volume") //nolint:usetesting // t.TempDir may not be on a tmpfs
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestVolumeCache: a host sees a volatile write cache if the volume has one, and one block as the atomic unit.
func TestVolumeCache(t *testing.T) {
	t.Parallel()
	disk, memory := t.TempDir(), memoryDir(t)
	for _, x := range []struct {
		volume string
		cache  bool
	}{
		{"mem:4MiB", false},
		{"null:4MiB", false},
		{filepath.Join(disk, "file.img"), true},
		{"check:" + filepath.Join(disk, "checked.img"), true},
		{"pmem:" + filepath.Join(memory, "pmem.img"), false},
		{"pmem:" + filepath.Join(memory, "inplace.img") + ",mode=inplace", false},
	} {
		args := []string{"--volume", x.volume}
		if strings.ContainsRune(x.volume, filepath.Separator) {
			args = append(args, "--size", "4MiB")
		}
		p := startTarget(t, args...)
		h := dialHost(t, p.remote(), "tcp", nil)
		id := h.Identify()
		if cache := id.VWC&nvme.VWCPresent != 0; cache != x.cache || id.AWUN != 0 || id.AWUPF != 0 {
			t.Errorf("%s: VWC %#x, AWUN %d, AWUPF %d", x.volume, id.VWC, id.AWUN, id.AWUPF)
		}
		h.close(t)
		p.stop(t)
	}
}

// TestVolumeFaults makes volumes fail in each way: the host gets the right status, and the other blocks and namespaces
// continue to work.
func TestVolumeFaults(t *testing.T) {
	t.Parallel()
	p := startTarget(t, "--volume", "fail:read@8,write@9,write@10=capacity,write@11=readonly,read@12=gone,read@13=busy,zeroes@14:mem:1MiB",
		"--volume", "mem:1MiB")
	for _, transport := range transports {
		h := dialHost(t, p.remote(), transport, nil)
		ns := h.namespace(t, 1)
		b := make([]byte, 4096)
		read := func(block int64) error { _, err := ns.ReadAt(t.Context(), b, block*4096); return err }
		write := func(block int64) error { _, err := ns.WriteAt(t.Context(), b, block*4096); return err }
		for _, x := range []struct {
			what string
			err  error
			want nvme.Status
		}{
			{"read of a bad block", read(8), nvme.StatusUnrecoveredRead},
			{"write of a bad block", write(9), nvme.StatusWriteFault},
			{"write without space", write(10), nvme.StatusCapacityExceeded},
			{"write to what became read-only", write(11), nvme.StatusNamespaceWriteProtected},
			{"read of what is gone", read(12), nvme.StatusNamespaceNotReady},
			{"read of what is busy", read(13), nvme.StatusNamespaceNotReady},
			{"write zeroes of a bad block", ns.WriteZeroes(t.Context(), 14*4096, 4096, false), nvme.StatusWriteFault},
			{"read beside them", read(7), nvme.StatusSuccess},
			{"write beside them", write(7), nvme.StatusSuccess},
		} {
			if x.want == nvme.StatusSuccess {
				if x.err != nil {
					t.Errorf("%s: %s: %v", transport, x.what, x.err)
				}
			} else if !errors.Is(x.err, x.want) {
				t.Errorf("%s: %s: %v, want %v", transport, x.what, x.err, x.want)
			}
		}
		other := h.namespace(t, 2)
		if _, err := other.WriteAt(t.Context(), b, 8*4096); err != nil {
			t.Errorf("%s: another namespace: %v", transport, err)
		}
		h.close(t)
	}
	p.stop(t)
}

// TestVolumeSignals freezes and thaws a volume, and scrubs another, by the signals for that.
func TestVolumeSignals(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "disk.img")
	p := startTarget(t, "--volume", "freeze:manual:mem:1MiB", "--volume", "check:"+path, "--size", "1MiB")
	h := dialHost(t, p.remote(), "tcp", nil)
	frozen := h.namespace(t, 1)
	checked := h.namespace(t, 2)
	if _, err := checked.WriteAt(t.Context(), bytes.Repeat([]byte{1}, 64<<10), 0); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGUSR2)
	waitText(t, &p.stderr, "blocks=16 bad=0")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{2}, 5*4096+7); err != nil {
		t.Fatal(err)
	}
	f.Close()
	p.signal(syscall.SIGUSR2)
	waitText(t, &p.stderr, "blocks=16 bad=1")
	if _, err := checked.ReadAt(t.Context(), make([]byte, 4096), 5*4096); !errors.Is(err, nvme.StatusUnrecoveredRead) {
		t.Errorf("the block that changed is read with %v", err)
	}
	p.signal(syscall.SIGUSR1)
	waitText(t, &p.stderr, "frozen=true")
	answered := make(chan error, 1)
	go func() {
		_, err := frozen.ReadAt(t.Context(), make([]byte, 4096), 0)
		answered <- err
	}()
	if _, err := checked.ReadAt(t.Context(), make([]byte, 4096), 0); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	select {
	case err := <-answered:
		t.Errorf("a frozen volume answered: %v", err)
	case <-soon.After(100 * time.Millisecond): // it may not have been asked before
	}
	p.signal(syscall.SIGUSR1)
	if err := <-answered; err != nil {
		t.Errorf("the read that waited: %v", err)
	}
	h.close(t)
	p.stop(t)
}

// TestScrubFrozen: a frozen volume holds up its own scrub, but neither the signal that thaws it nor the end of the
// program.
func TestScrubFrozen(t *testing.T) {
	t.Parallel()
	p := startTarget(t, "--volume", "check:freeze:manual:mem:1MiB")
	h := dialHost(t, p.remote(), "tcp", nil)
	ns := h.namespace(t, 1)
	if _, err := ns.WriteAt(t.Context(), make([]byte, 64<<10), 0); err != nil {
		t.Fatal(err)
	}
	said := func(what string, times int) {
		t.Helper()
		eventually(t, 10*time.Second, what, func() bool { return strings.Count(p.stderr.String(), what) == times })
	}
	p.signal(syscall.SIGUSR1)
	said("frozen=true", 1)
	p.signal(syscall.SIGUSR2)
	p.signal(syscall.SIGUSR1)
	said("frozen=false", 1)
	said("blocks=16 bad=0", 1)
	p.signal(syscall.SIGUSR1)
	said("frozen=true", 2)
	p.signal(syscall.SIGUSR2)
	h.close(t)
	p.stop(t)
}
