// Package persist adds a kind of volume that lies in mapped persistent memory.
//
// [Open] maps a file. What the volume promises depends on the file, and Info.Mode says it:
//
//   - On a DAX file system the mapping is the memory itself (MAP_SYNC). Each write flushes the cache lines that it
//     touched, with the best instruction that the processor has, before it completes. So a completed write is durable
//     and there is no volatile cache.
//   - On another file system, or a block device, even one of persistent memory, the mapping is the page cache. The
//     kernel keeps track of dirty pages; Flush and FUA are msync. A completed write survives the death of the program,
//     a flushed one that of the machine.
//   - On tmpfs and hugetlbfs nothing survives the machine, and Flush has nothing to do.
//
// # Out of place, and in place
//
// By default, blocks are written out of place (atomicVolume): data goes to free blocks, and one 8-byte store in the map
// makes each the content of a logical block, so that a block is old or new after any crash: Info.AtomicBlocks is 1.
// Such a volume is a [blockdev.Lender]: transports receive data straight into the free blocks. docs/pmem.md describes
// the format and its reasons.
//
// In place (volume), data is copied into the block itself. Overlapping requests and views see each block whole
// ([blockdev.Guard]), but a power failure in the middle of a write may leave the block torn, so Info.AtomicBlocks is 0.
//
// # Faults
//
// Memory of a mapping can fail: a hole is written to while the file system is full, the medium is broken, or somebody
// has truncated the file. The system reports that with SIGBUS. The package turns it into an error of the request; View
// and Lend first touch the pages that they hand out.
//
// # Concurrency
//
// As for every [blockdev.Volume]. Requests run in the caller's goroutine, except for msync, discard and large ranges,
// which run on a few goroutines that end when idle.
//
// # Where to change what
//
//	the specification, and opening in place                open.go
//	in place: the requests                                 volume.go
//	out of place: the volume, and a request's way          atomic.go
//	    opening, creating, and growing it                  atomic_open.go, create.go, grow.go
//	    the format, and its superblocks                    format.go, super.go
//	    an extent, and runs of its blocks                  extent.go
//	    reads, writes, and changes of the map              atomic_io.go
//	    views and loans                                    atomic_memory.go, pieces.go, pins.go
//	    free blocks, and writes that wait for some         atomic_space.go, freeset.go, bitset.go
//	    the working map, and carrying it over              checkpoint.go, session.go
//	    opening after a crash; check, and repair           recover.go, check.go
//	the mapping, and faults of its memory                  mapping.go, fault.go
//	cache lines                                            lines.go, lines_amd64.go, lines_arm64.go,
//	                                                       lines_other.go
package persist
