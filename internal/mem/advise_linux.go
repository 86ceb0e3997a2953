package mem

import "golang.org/x/sys/unix"

// advise asks for transparent huge pages, or that there be none. Kernels without them refuse, and nothing is
// lost but speed.
func advise(mem []byte, kind pages) {
	advice := unix.MADV_HUGEPAGE
	if kind == smallPages {
		advice = unix.MADV_NOHUGEPAGE
	}
	_ = unix.Madvise(mem, advice)
}
