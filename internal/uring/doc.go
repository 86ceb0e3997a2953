// Package uring is io_uring for one goroutine: enough of it to read and write files with
// registered files and buffers, many at a call.
//
// # Use
//
// [Open] makes a ring. Its owner takes entries with [Ring.Next], fills them in, calls
// [Ring.Enter], which submits them and may wait, and then [Ring.Reap]. Kernels from 6.1 on
// complete requests only inside Enter, on the thread that opened the ring, so the owner is
// locked to its thread (runtime.LockOSThread) from Open to Close, and all methods but [Ring.Wake]
// are the owner's alone. Wake is anybody's: it ends an Enter that waits.
//
// # Ownership
//
// The kernel uses the memory that an entry names until the entry's completion is reaped; the
// garbage collector doesn't know of it, so the caller keeps it reachable and in place.
//
// An idle ring costs nothing: its owner blocks in Enter.
package uring
