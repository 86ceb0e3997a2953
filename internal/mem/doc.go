// Package mem hands out aligned buffers from mapped memory, so that a transport can register
// the memory with its devices once, in large pieces, and then use any buffer of it.
//
// # What is handed out
//
// An Arena maps chunks of a few MiB, or as large as its largest buffers need, asks for huge pages for them, and adds
// chunks up to Config.Max. Buffers of 4 KiB and more are page-aligned; smaller ones are aligned to their size, rounded
// up to a power of two of at least 512 bytes. Buffers much of which may never be used (AllocSparse) come from chunks
// with pages of the normal size, as a huge page takes all of its memory with the first byte. Buffers contain data from
// earlier use: overwrite all of a buffer before sending it.
//
// # How
//
// Each chunk is a buddy allocator, which joins free neighbours at once: memory that served small buffers can serve
// large ones later. In front of it are small stacks of freed buffers, one for each power of two, which make the common
// case take a few tens of nanoseconds under a lock that is rarely contended. The bookkeeping is kept apart from the
// chunks, not in them.
//
// # Ownership and concurrency
//
// Every method may be called from any goroutine; only growing allocates in the Go heap. A buffer belongs to its user
// until Free. Freeing a buffer twice, or one that isn't the Arena's, does nothing; built with the tag "invariants", it
// panics, and freed memory is overwritten to expose reads after Free.
//
// # Memory of files
//
// Copy and Caught are for code that accesses memory of a volume, which may be the mapping of a file: if a page of it is
// gone, that is an error and doesn't end the program.
package mem
