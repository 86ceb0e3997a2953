// Package persist adds a kind of volume that lies in a mapping of persistent memory.
//
// [Open] maps a file. What that promises depends on the file, and Info.Mode says it:
//
//   - On a DAX file system the mapping is the memory itself (MAP_SYNC). Each write flushes
//     the cache lines that it touched, with the best instruction that the processor has,
//     before it completes. So a completed write is durable and there is no volatile cache.
//     Flushing at once costs less than keeping account of what is to be flushed: the lines
//     are in the cache of the processor that wrote them.
//   - On another file system, or a block device, the mapping is the page cache. The kernel
//     keeps account of dirty pages; Flush, and FUA for its range, are msync. A completed
//     write survives the death of the program, a flushed one that of the machine.
//   - On tmpfs nothing survives the machine, and Flush has nothing to do.
//
// Writes go in place: the copy is into the block itself. Requests and views that meet on a
// block see it whole ([blockdev.Guard]); a power failure in the middle of a write may leave
// the block torn, so Info.AtomicBlocks is 0.
//
// # Faults
//
// Memory of a mapping can fail: a hole is written and the file system is full, the medium is
// broken, someone has cut the file. The system says so with SIGBUS. The package turns it into
// an error of the request; View touches the pages that it lends first.
//
// # Concurrency
//
// As for every [blockdev.Volume]. Requests run in the caller's goroutine, but for msync,
// discard and large ranges, which run on a few goroutines that end when idle.
package persist
