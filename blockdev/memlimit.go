package blockdev

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryLimit returns how many bytes of memory and swap the program may use, as the machine and control groups allow:
// more than a volume can ever hold.
func memoryLimit() int64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return math.MaxInt64
	}
	unit := uint64(s.Unit)
	group, _ := os.ReadFile("/proc/self/cgroup")
	return min(int64((s.Totalram+s.Totalswap)*unit), groupLimit("/sys/fs/cgroup", string(group), int64(s.Totalswap*unit)))
}

// groupLimit returns how many bytes of memory and swap the control groups (version 2) below root allow that group, the
// content of /proc/self/cgroup, names: one that a container or a service is in, and those around it. The machine has
// swap bytes of swap.
func groupLimit(root, group string, swap int64) int64 {
	least := int64(math.MaxInt64)
	for line := range strings.Lines(group) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue // of version 1
		}
		for dir := filepath.Join("/", path); ; dir = filepath.Dir(dir) {
			memory := readLimit(filepath.Join(root, dir, "memory.max"))
			more := min(swap, readLimit(filepath.Join(root, dir, "memory.swap.max")))
			least = min(least, min(memory, math.MaxInt64-more)+more)
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// readLimit returns the limit in a file of a control group; the largest number if there is none.
func readLimit(name string) int64 {
	b, err := os.ReadFile(name)
	if err != nil {
		return math.MaxInt64 // the root has no such file
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return math.MaxInt64 // "max"
	}
	return n
}
