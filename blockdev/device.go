package blockdev

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// deviceDiscards tells whether a block device, or the whole disk of a partition, takes
// discards.
func deviceDiscards(f *os.File) bool {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return false
	}
	dir := fmt.Sprintf("/sys/dev/block/%d:%d/", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	for _, queue := range []string{"queue/", "../queue/"} {
		if s, err := os.ReadFile(dir + queue + "discard_max_bytes"); err == nil {
			return strings.TrimSpace(string(s)) != "0"
		}
	}
	return false
}
