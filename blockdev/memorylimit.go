package blockdev

import (
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryLimit returns how many bytes of memory and swap the program can have: more than a volume can ever hold. whose
// says for people what sets the limit.
func memoryLimit() (most int64, whose string) {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return math.MaxInt64, "the machine has"
	}
	ram, swap := s.Totalram*uint64(s.Unit), s.Totalswap*uint64(s.Unit)
	if group := groupMemory(os.DirFS("/"), ram, swap); group < ram+swap {
		return int64(group), "this program's control group (cgroup) has"
	}
	return int64(ram + swap), "the machine has"
}

// cgroups is where version 2 of the control groups is mounted: a container, or a systemd unit with MemoryMax=, has its
// limits there.
const cgroups = "sys/fs/cgroup"

// groupMemory returns how much of the machine's memory and swap together the control groups leave to this process: its
// own group, and those around it.
func groupMemory(root fs.FS, ram, swap uint64) uint64 {
	most := ram + swap
	for dir := path.Join(cgroups, controlGroup(root)); ; dir = path.Dir(dir) {
		most = min(most, groupLimit(root, dir, "memory.max", ram)+groupLimit(root, dir, "memory.swap.max", swap))
		if dir == cgroups {
			return most
		}
	}
}

// controlGroup returns the path of this process's control group below the mount point. It begins with ".." in /proc if
// the process was moved out of its cgroup namespace, which shows nothing of such a group: then the root stands for it.
func controlGroup(root fs.FS) string {
	b, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(b)) {
		group, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if ok && !strings.HasPrefix(group, "/..") {
			return group
		}
	}
	return "/"
}

// groupLimit reads a limit of a control group, at most what the machine has. There is none if the file says "max", or
// doesn't exist.
func groupLimit(root fs.FS, dir, name string, machine uint64) uint64 {
	b, _ := fs.ReadFile(root, path.Join(dir, name))
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return machine
	}
	return min(n, machine)
}
