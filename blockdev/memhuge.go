package blockdev

import (
	"bytes"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Huge pages spare who reads and writes at random a walk through page tables for each block, and a fault for each
// first write of 4 KiB. But the first write to one takes 2 MiB, and a volume may be larger than the memory that is
// free as long as what is written isn't. So those get them that could be written whole anyway.

// hugePart is which part of the memory all volumes with huge pages may have together.
const hugePart = 4

// hugeVolumes is how many bytes those have.
var hugeVolumes atomic.Int64

// takeHuge has the kernel take huge pages for mem, and says whether it may.
func takeHuge(mem []byte) bool {
	size := int64(len(mem))
	if hugeVolumes.Add(size) > memoryForUs()/hugePart || unix.Madvise(mem, unix.MADV_HUGEPAGE) != nil {
		hugeVolumes.Add(-size)
		return false
	}
	return true
}

// memoryForUs is what the program may use of the machine's memory: less than all in a container with a limit.
func memoryForUs() int64 {
	most := machineMemory()
	if b, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if limit, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64); err == nil { // or "max"
			most = min(most, limit)
		}
	}
	return most
}
