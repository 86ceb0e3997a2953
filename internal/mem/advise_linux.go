package mem

import "golang.org/x/sys/unix"

// adviseHuge asks for transparent huge pages. Kernels without them refuse, and nothing is
// lost but speed.
func adviseHuge(mem []byte) { _ = unix.Madvise(mem, unix.MADV_HUGEPAGE) }
