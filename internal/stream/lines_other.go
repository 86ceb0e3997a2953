//go:build !amd64

package stream

import "unsafe"

// available reports whether the processor has such stores.
const available = false

// Lines is not available.
func Lines(unsafe.Pointer, unsafe.Pointer, uintptr) { panic("stream: not on this processor") }
