//go:build !amd64 && !arm64

package prefetch

// Start does nothing.
func Start([]byte) {}

// Whole does nothing.
func Whole([]byte) {}

// ForWrite does nothing.
func ForWrite([]byte) {}
