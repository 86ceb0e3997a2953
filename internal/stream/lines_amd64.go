package stream

import "unsafe"

// Available reports whether the processor has such stores.
const Available = true

// Lines copies n bytes from src, which may have any alignment, to dst; n and dst are multiples of Line.
//
//go:noescape
func Lines(dst, src unsafe.Pointer, n uintptr)
