package mem

import "golang.org/x/sys/unix"

// advise asks for transparent huge pages, or for none. Kernels without them refuse, which costs only speed.
func advise(mem []byte, kind pages) {
	advice := unix.MADV_HUGEPAGE
	if kind == smallPages {
		advice = unix.MADV_NOHUGEPAGE
	}
	_ = unix.Madvise(mem, advice)
}
