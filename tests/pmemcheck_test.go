package tests

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// pmemCheck runs nvmetgt pmem check on a file.
func pmemCheck(t *testing.T, path string, more ...string) result {
	t.Helper()
	return start(t, "nvmetgt", append([]string{"pmem", "check", path}, more...)...).result(t, 20*time.Second)
}

// pmemBlock is what TestPmemCheck writes.
func pmemBlock(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, 4096) }

// TestPmemCheck damages the map of a volume in ways that an operator may find: it isn't served, check says what is
// wrong, and after a repair everything except the lost block is as it was.
func TestPmemCheck(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pmem.img")
	p := startTarget(t, "--volume", "pmem:"+path, "--size", "4MiB")
	if r := pmemCheck(t, path); r.code != exitFailure || !strings.Contains(r.stderr, "in use") {
		t.Errorf("of a volume that is served: exit code %d, %s", r.code, r.stderr)
	}
	h := dialHost(t, p.remote(), "tcp", nil)
	ns := h.namespace(t, 1)
	for i := range 8 {
		if _, err := ns.WriteAtFUA(t.Context(), pmemBlock(i), int64(i)*4096); err != nil {
			t.Fatal(err)
		}
	}
	h.close(t)
	p.stop(t)
	if r := pmemCheck(t, path); r.code != 0 || !strings.Contains(r.stdout, "8 blocks written, 0 lost") ||
		!strings.Contains(r.stdout, "% beyond the volume") || !strings.Contains(r.stdout, "clean") {
		t.Fatalf("exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}

	damageMap(t, path, 2)
	repairOneBlock(t, path)
	p = startTarget(t, "--volume", "pmem:"+path)
	h = dialHost(t, p.remote(), "rdma", nil)
	checkLost(t, h.namespace(t, 1), 2)
	h.close(t)
	p.stop(t)
	if r := pmemCheck(t, path); r.code != 0 {
		t.Errorf("in the end: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
}

// repairOneBlock checks that a volume whose logical block 2 is damaged isn't served, and repairs it.
func repairOneBlock(t *testing.T, path string) {
	t.Helper()
	refused := start(t, "nvmetgt", "serve", "--listen", "tcp://"+freeAddr(t).String(), "--volume", "pmem:"+path).result(t, 20*time.Second)
	if refused.code != exitFailure || !strings.Contains(refused.stderr, "pmem check") {
		t.Errorf("a damaged volume is served: exit code %d, %s", refused.code, refused.stderr)
	}
	if r := pmemCheck(t, path); r.code != exitFailure || !strings.Contains(r.stdout, "logical block 2") || !strings.Contains(r.stderr, "--repair") {
		t.Errorf("check: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	if r := pmemCheck(t, path, "--repair"); r.code != exitFailure || !strings.Contains(r.stdout, "repaired") || !strings.Contains(r.stderr, "1 block is lost") {
		t.Errorf("repair: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	var report struct{ Used, Lost int }
	if r := pmemCheck(t, path, "-o", "json"); r.code != exitFailure || json.Unmarshal([]byte(r.stdout), &report) != nil || report.Used != 7 || report.Lost != 1 {
		t.Errorf("check -o json: exit code %d, %s", r.code, r.stdout)
	}
}

// checkLost reads blocks of which one is lost, and writes that one.
func checkLost(t *testing.T, ns *host.Namespace, lost int) {
	t.Helper()
	got := make([]byte, 4096)
	for i := range 8 {
		switch _, err := ns.ReadAt(t.Context(), got, int64(i)*4096); {
		case i == lost && !errors.Is(err, nvme.StatusUnrecoveredRead):
			t.Errorf("the lost block is read with %v", err)
		case i != lost && (err != nil || !bytes.Equal(got, pmemBlock(i))):
			t.Errorf("block %d: %v, %d…", i, err, got[0])
		}
	}
	if _, err := ns.WriteAt(t.Context(), pmemBlock(lost), int64(lost)*4096); err != nil {
		t.Errorf("the lost block is written with %v", err)
	}
}

// damageMap overwrites the entry of a logical block in the durable map of a volume.
func damageMap(t *testing.T, path string, block int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	extent := make([]byte, 48) // the first one; both superblocks have it at the same place (docs/pmem.md)
	if _, err := f.ReadAt(extent, 4096+128); err != nil {
		t.Fatal(err)
	}
	durableMap := int64(binary.LittleEndian.Uint64(extent[16:]))
	if _, err := f.WriteAt(bytes.Repeat([]byte{0x5a}, 8), durableMap+block*8); err != nil {
		t.Fatal(err)
	}
}
