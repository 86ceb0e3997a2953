package linux

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/tests/hostlib"
)

// testDeviceFaults: whatever happens to the disk below a volume, the host gets the status that says so, and the other
// volume continues to work.
func testDeviceFaults(t *testing.T, version string) {
	s := newStore(t, version)
	s.boot(t)
	s.format(t)
	s.must(t, "mount -t ext4 -o dax=always /dev/pmem0 /dimm")
	disk := storeVolume{spec: "/dev/vda", block: 512}
	for _, c := range []struct {
		name   string
		volume storeVolume
		test   func(*testing.T, *store, *host.Namespace)
	}{
		{"full", storeVolume{spec: "/disk/sparse", size: 2 * storeDisk, block: 512}, testFull},
		{"read-only", disk, testReadOnlyDisk}, // a file system: see packages blockdev and persist
		{"broken", disk, testBrokenDisk},
		{"vanished", disk, testVanishedDisk},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.volume != disk {
				s.must(t, "mount -t ext4 /dev/vda /disk")
			}
			s.serve(t, c.volume, storeVolumes[0])
			h := s.dial(t, "tcp")
			ns := s.namespace(t, h, 1)
			if _, err := ns.WriteAt(t.Context(), pattern, 0); err != nil {
				t.Fatal(err)
			}
			c.test(t, s, ns)
			other := s.namespace(t, h, 2)
			if _, err := other.WriteAtFUA(t.Context(), pattern, 0); err != nil {
				t.Errorf("the other volume: %v", err)
			}
			if err := h.Close(); err != nil {
				t.Errorf("disconnecting: %v", err)
			}
			s.stop(t)
			if c.volume != disk {
				s.must(t, "umount /disk")
			}
		})
	}
	for _, line := range s.Complaints() {
		t.Errorf("the kernel says: %s", line)
	}
}

// pattern is the content before a fault.
var pattern = bytes.Repeat([]byte("nvme"), 4096/4)

func (s *store) namespace(t *testing.T, h *hostlib.Host, nsid uint32) *host.Namespace {
	t.Helper()
	ns, err := h.Namespace(t.Context(), nsid)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// wantStatus checks how an operation ended.
func wantStatus(t *testing.T, what string, err error, status nvme.Status) {
	t.Helper()
	if !errors.Is(err, status) {
		t.Errorf("%s: %v, want %v", what, err, status)
	}
}

// wantPattern checks that the first block can be read.
func wantPattern(t *testing.T, ns *host.Namespace) {
	t.Helper()
	b := make([]byte, len(pattern))
	if _, err := ns.ReadAt(t.Context(), b, 0); err != nil || !bytes.Equal(b, pattern) {
		t.Errorf("what was there before: %v", err)
	}
}

func testFull(t *testing.T, s *store, ns *host.Namespace) {
	data := make([]byte, 1<<20)
	var err error
	for off := int64(len(data)); err == nil && off < ns.Size(); off += int64(len(data)) {
		_, err = ns.WriteAt(t.Context(), data, off)
	}
	wantStatus(t, "writing to a full file system", err, nvme.StatusCapacityExceeded)
	wantPattern(t, ns)
	if err := ns.Discard(t.Context(), 1<<20, 16<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := ns.WriteAt(t.Context(), data, 1<<20); err != nil {
		t.Errorf("after a discard made room: %v", err)
	}
	if err := ns.Discard(t.Context(), 0, ns.Size()); err != nil {
		t.Error(err)
	}
}

func testReadOnlyDisk(t *testing.T, s *store, ns *host.Namespace) {
	s.must(t, "blockdev --setro /dev/vda")
	_, err := ns.WriteAt(t.Context(), pattern, 1<<20)
	wantStatus(t, "writing to a disk that became read-only", err, nvme.StatusNamespaceWriteProtected)
	wantPattern(t, ns)
	s.must(t, "blockdev --setrw /dev/vda")
}

func testBrokenDisk(t *testing.T, s *store, ns *host.Namespace) {
	s.disk.Break(true)
	_, err := ns.ReadAt(t.Context(), make([]byte, 4096), 0)
	wantStatus(t, "reading from a broken disk", err, nvme.StatusUnrecoveredRead)
	_, err = ns.WriteAt(t.Context(), pattern, 0)
	wantStatus(t, "writing to a broken disk", err, nvme.StatusWriteFault)
	s.disk.Break(false)
	wantPattern(t, ns)
}

func testVanishedDisk(t *testing.T, s *store, ns *host.Namespace) {
	s.must(t, "echo 1 >$(readlink -f /sys/block/vda/device/..)/remove; while [ -e /sys/block/vda ]; do sleep 0.1; done")
	_, err := ns.ReadAt(t.Context(), make([]byte, 4096), 0)
	wantStatus(t, "reading from a disk that was taken away", err, nvme.StatusNamespaceNotReady)
	_, err = ns.WriteAt(t.Context(), pattern, 0)
	wantStatus(t, "writing to a disk that was taken away", err, nvme.StatusNamespaceNotReady)
	wantStatus(t, "flushing a disk that was taken away", ns.Flush(t.Context()), nvme.StatusNamespaceNotReady)
}
