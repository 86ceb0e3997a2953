// Package ring is a queue of trains of datagrams in memory that two processes share: one of them writes, the other
// reads, and neither makes system calls or waits for the other.
//
// # Memory
//
// A ring takes Size bytes, page-aligned and initially zero: a page with the positions of both sides and whether the
// reader sleeps, each in a cache line of its own, in the processor's byte order, then Capacity bytes of records. A
// record is a header of 16 bytes (length of the train in bytes, length of its datagrams, traffic class, 0; 32 bits
// each), the bytes of the train in one piece, and padding to a multiple of 64 bytes. Where a record doesn't fit before
// the end, a header of length skip fills the rest.
//
// # Trust
//
// The other process can change shared memory at any time. A Reader accepts only what is within bounds, and fails with
// ErrCorrupt if the positions or a header are invalid; but the bytes of a train may change while they are read, so a
// ring is for processes that may read and write each other's memory anyway. The memory must not shrink meanwhile
// (F_SEAL_SHRINK).
//
// # Concurrency
//
// One goroutine at a time may write, and one may read. Nothing is allocated.
package ring
