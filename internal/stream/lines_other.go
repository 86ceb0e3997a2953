//go:build !amd64

package stream

import "unsafe"

// Available reports whether the processor has such stores.
const Available = false

// Lines is not available.
func Lines(unsafe.Pointer, unsafe.Pointer, uintptr) { panic("stream: not on this processor") }
