// Package aio is Linux's first asynchronous I/O (io_submit): reads and writes of files that are
// open for direct I/O.
//
// # Use
//
// [Open] makes a context. Anybody submits requests with [Context.Submit], each with a system call of
// its own, and one goroutine takes what is done with [Context.Wait], where it blocks. Beside
// io_uring, whose requests complete on the thread that submitted them, a request's completion wakes
// only the one that waits for it: whoever has a request need not wake another to have it submitted. And
// whoever is awake anyway sees by [Context.Ready] that something is done, and takes it with [Context.Take].
//
// A file that isn't open for direct I/O has its requests executed inside Submit, which is of no use.
//
// # Ownership
//
// The memory of a request's data is the kernel's until its event is taken; the garbage collector
// doesn't know of it, so the caller keeps it reachable and in place. The Request itself and its
// vectors are the caller's again when Submit returns.
package aio
