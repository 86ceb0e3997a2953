package stream

import "unsafe"

// available reports whether the processor has such stores.
const available = true

// Lines copies n bytes from src, which may have any alignment, to dst; n and dst are multiples of Line.
//
//go:noescape
func Lines(dst, src unsafe.Pointer, n uintptr)
