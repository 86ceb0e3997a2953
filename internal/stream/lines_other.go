//go:build !amd64

package stream

import "unsafe"

// Available says whether the processor has such stores.
const Available = false

// Lines isn't there.
func Lines(unsafe.Pointer, unsafe.Pointer, uintptr) { panic("stream: not on this processor") }
