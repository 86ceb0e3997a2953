// Package ring is a queue of trains of datagrams in memory that two processes share: one of them
// writes, the other reads, and neither calls the system or waits for the other.
//
// # Memory
//
// A ring takes Size bytes, aligned to a page and zero in the beginning: a page with the positions of both
// sides and whether the reader sleeps, each in a cache line of its own, in the processor's byte order, then
// Capacity bytes of records. A record is a header of 16 bytes (length of the train in bytes, length of its
// datagrams, traffic class, 0; 32 bits each), the bytes of the train in one piece, and what is missing to
// a multiple of 64. Where a record doesn't fit before the end, a header of length skip fills the rest.
//
// # Trust
//
// Who shares memory can change it at any time. A Reader believes nothing that isn't within bounds, and
// fails with ErrCorrupt where the positions or a header can't be; the bytes of a train may change while
// they are read, so that a ring is for processes that may read and write each other's memory anyway.
// The memory must not shrink meanwhile (F_SEAL_SHRINK).
//
// # Concurrency
//
// One goroutine at a time writes, and one reads. Nothing is allocated.
package ring
