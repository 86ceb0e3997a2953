// Package aio is Linux's asynchronous I/O, by either of its interfaces: reads and writes of a file that is
// open for direct I/O.
//
// # Use
//
// [OpenContext] makes a [Context], which is io_submit, and [OpenRing] a [Ring], which is io_uring. Both are used in one
// way. Anybody submits requests, each with a system call of its own, so nobody need be woken to have one submitted. One
// goroutine takes what is done with Wait, where it blocks; whoever is awake anyway sees by Ready, a look into memory,
// that something is done, and takes it with Take.
//
// A file that isn't open for direct I/O has the requests of a context executed inside Submit, which is of no use.
//
// A context's request is done when the device says so, and that wakes the one who waits. A ring's is done on the thread
// that submitted it, in its next system call; where it sleeps it is woken, and wakes the one who waits. But where it
// waits for a disk, or a file system that is frozen, in a call of its own that can't be interrupted, its requests are
// done when that is over. So a ring that takes requests from everybody can't have them complete only when asked for
// (IORING_SETUP_DEFER_TASKRUN), and who is about to make such a call makes it with [Apart] or [ApartHere], on a thread
// that has none under way. Calls that wait for anything else can be interrupted.
//
// # Ownership
//
// The memory of a request's data is the kernel's until its event is taken; the garbage collector
// doesn't know of it, so the caller keeps it reachable and in place. A request's vectors are the caller's again when
// Submit returns; they must lie in memory that stays where it is, as the Go heap's does.
//
// An idle context or ring costs nothing.
package aio
