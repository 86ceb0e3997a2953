package blockdev

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

// TestMemoryTooLarge: a volume that can't ever be written completely isn't made.
func TestMemoryTooLarge(t *testing.T) {
	_, err := NewMemory(Options{Size: 1 << 60})
	if !errors.Is(err, ErrCapacity) || !strings.Contains(err.Error(), "memory and swap") {
		t.Error(err)
	}
}

// TestGroupMemory: a control group that has less memory than the machine, as that of a container does, limits what a memory volume may
// have; so does any group around it. What Linux writes into the files is in its Documentation/admin-guide/cgroup-v2.rst.
func TestGroupMemory(t *testing.T) {
	const ram, swap = 1000, 200
	for _, c := range []struct {
		what  string
		files map[string]string
		want  uint64
	}{
		{"no cgroups", nil, ram + swap},
		{"version 1", map[string]string{"proc/self/cgroup": "4:memory:/a\n0::/\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1\n"}, ram + swap},
		{"no limit", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.swap.max": "max\n"}, ram + swap},
		{"a container with its own namespace", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "512\n", "sys/fs/cgroup/memory.swap.max": "0\n"}, 512},
		{"swap without a limit", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "512\n", "sys/fs/cgroup/memory.swap.max": "max\n"}, 512 + swap},
		{"swap alone", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.swap.max": "0\n"}, ram},
		{"no accounting of swap", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "512\n"}, 512 + swap},
		{"more than the machine", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "9223372036854771712\n"}, ram + swap},
		{"a unit in a slice", map[string]string{"proc/self/cgroup": "0::/s.slice/u.service\n", "sys/fs/cgroup/s.slice/u.service/memory.max": "700\n", "sys/fs/cgroup/s.slice/u.service/memory.swap.max": "0\n"}, 700},
		{"the slice has less", map[string]string{
			"proc/self/cgroup":                                "0::/s.slice/u.service\n",
			"sys/fs/cgroup/s.slice/u.service/memory.max":      "700\n",
			"sys/fs/cgroup/s.slice/u.service/memory.swap.max": "0\n",
			"sys/fs/cgroup/s.slice/memory.max":                "300\n",
			"sys/fs/cgroup/s.slice/memory.swap.max":           "0\n",
		}, 300},
		{"moved out of the namespace", map[string]string{"proc/self/cgroup": "0::/../other\n", "sys/fs/cgroup/memory.max": "512\n", "sys/fs/other/memory.max": "1\n"}, 512 + swap},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := groupMemory(root, ram, swap); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}
