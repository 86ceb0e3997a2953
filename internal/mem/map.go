package mem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pages is the kind of a chunk's pages.
type pages bool

const (
	hugePages  pages = false // if the kernel has them
	smallPages pages = true
)

// hugePage is the alignment of chunks, so that the kernel can back them with huge pages.
const hugePage = 2 << 20

// mapMemory maps size bytes, aligned to a huge page if size is at least one.
func mapMemory(size int, kind pages) ([]byte, error) {
	slack := 0
	if size >= hugePage {
		slack = hugePage
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size+slack), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("mem: map %d bytes: %w (check `ulimit -v` and vm.max_map_count)", size, err)
	}
	if slack > 0 {
		head := -uintptr(p) & (hugePage - 1)
		if head > 0 {
			_ = unix.MunmapPtr(p, head)
		}
		p = unsafe.Add(p, head)
		if tail := uintptr(slack) - head; tail > 0 {
			_ = unix.MunmapPtr(unsafe.Add(p, size), tail)
		}
	}
	mem := unsafe.Slice((*byte)(p), size)
	advise(mem, kind)
	return mem, nil
}

func unmapMemory(mem []byte) {
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}

// advise asks for transparent huge pages, or for none. Kernels without them refuse, which costs only speed.
func advise(mem []byte, kind pages) {
	advice := unix.MADV_HUGEPAGE
	if kind == smallPages {
		advice = unix.MADV_NOHUGEPAGE
	}
	_ = unix.Madvise(mem, advice)
}
