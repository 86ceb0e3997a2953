package blockdev

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// advisedHuge says whether the kernel knows that mem is to be in huge pages (proc_pid_smaps(5), VmFlags).
func advisedHuge(t *testing.T, mem []byte) bool {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	inside := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			inside = from <= at && at < to
		}
		if flags, ok := strings.CutPrefix(lines.Text(), "VmFlags:"); ok && inside {
			return slices.Contains(strings.Fields(flags), "hg")
		}
	}
	t.Fatal("the mapping isn't in /proc/self/smaps")
	return false
}

// TestHugePages: volumes have huge pages up to a quarter of the memory, all together, so that none takes
// more memory than there is though little of it is written.
func TestHugePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skip("this kernel has no transparent huge pages")
	}
	const block = DefaultBlockSize
	quarter := memoryForUs() / 4 / block * block
	open := func(size int64) *memory {
		v, err := NewMemory(Options{Size: size})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { v.Close() })
		return v.(*memory)
	}
	before := hugeVolumes.Load()
	small, large := open(64<<20), open(quarter)
	if !advisedHuge(t, small.mem) {
		t.Error("a small volume isn't in huge pages")
	}
	if advisedHuge(t, large.mem) {
		t.Error("a quarter of the memory more is")
	}
	small.Close()
	if again := open(quarter - before); !advisedHuge(t, again.mem) {
		t.Error("a volume that is closed still counts")
	} else if again.Close(); hugeVolumes.Load() != before {
		t.Errorf("%d bytes in huge pages after all are closed, %d before", hugeVolumes.Load(), before)
	}
}
