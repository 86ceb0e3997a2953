//go:build amd64 || arm64

package prefetch

import "unsafe"

// Start fetches the first lines of b, 256 bytes. Who goes on reading in order has the processor fetch what
// follows by itself.
func Start(b []byte) { lines(unsafe.Pointer(unsafe.SliceData(b))) }

// lines fetches four lines of 64 bytes.
//
//go:noescape
func lines(p unsafe.Pointer)
