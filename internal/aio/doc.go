// Package aio provides Linux's asynchronous I/O, by either of its interfaces: reads and writes of a file that is open
// for direct I/O.
//
// # Use
//
// [OpenContext] makes a [Context], which is io_submit, and [OpenRing] a [Ring], which is io_uring. Both are used in the
// same way. Any goroutine submits requests, each with a system call of its own, so nobody needs to be woken to have one
// submitted. One goroutine takes finished requests with Wait, in which it blocks; goroutines that are awake anyway
// learn from Ready, which only looks at memory, that something is finished, and take it with Take.
//
// If a file isn't open for direct I/O, a context executes its requests inside Submit, which is useless.
//
// A context's request is finished when the device says so, and that wakes the goroutine in Wait. A ring's request is
// finished on the thread that submitted it, in that thread's next system call; a sleeping thread is woken for that, and
// then wakes the goroutine in Wait. But while the thread waits for a disk, or a frozen file system, in an
// uninterruptible call, its requests aren't finished until that call is over. So a ring that takes requests from many
// goroutines can't have them completed only on demand (IORING_SETUP_DEFER_TASKRUN), and such calls must be made with
// [Apart] or [ApartHere], on a thread that has no requests in flight. Calls that wait for anything else can be
// interrupted.
//
// # Ownership
//
// The memory of a request's data is the kernel's until its event is taken; the garbage collector doesn't know that, so
// the caller keeps it reachable and in place. A request's vectors are the caller's again when Submit returns; they must
// lie in memory that doesn't move, such as the Go heap.
//
// An idle context or ring costs nothing.
package aio
