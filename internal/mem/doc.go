// Package mem hands out aligned buffers from mapped memory, so that a transport can register
// the memory with its devices once, in large pieces, and then use any buffer of it.
//
// # What is handed out
//
// An Arena maps chunks of a few MiB, or of what its largest buffers take, asks for huge pages for them, and grows by
// further chunks up to Config.Max. Buffers of 4 KiB and more begin at a page, smaller ones at a multiple of their size,
// which is a power of two from 512 bytes. Buffers of which much may never be used (AllocSparse) come from chunks with
// pages of the usual size, as a huge one takes all of its memory with the first byte. Contents are left over from earlier
// use: who sends a buffer overwrites it first, and whole.
//
// # How
//
// Each chunk is a buddy allocator, whose free neighbours join again at once: memory that served
// small buffers serves large ones later. In front lie small stacks of freed buffers, one for each
// power of two, which make the common case a few tens of nanoseconds under a lock that is seldom
// contended. What describes the blocks lies beside the chunks, not in them.
//
// # Ownership and concurrency
//
// Every method may be called from any goroutine; nothing allocates in the Go heap except
// growing. A buffer belongs to its user until Free. Freeing twice, or what isn't an arena's,
// changes nothing and is counted; built with the tag "invariants" it panics, and freed
// memory is overwritten so that late readers show themselves.
//
// # Memory of files
//
// Copy and Caught are for who touches memory that a volume gave and that may be the mapping of a
// file: a page of it that is gone is their error, and not the program's end.
package mem
