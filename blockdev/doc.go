// Package blockdev defines what a volume is and provides its basic kinds: a file or block device, memory, and null.
// Package persist adds persistent memory.
//
// # Use
//
// [Open] opens a volume from a specification as a user writes it ("disk.img", "mem:1GiB", "null:1TiB"). A [Request] is
// made once and submitted many times; it belongs to the volume from [Volume.Submit] until its Complete is called, and
// so do the bytes of its Bufs. A volume that can answer at once does so before Submit returns. Nothing is allocated for
// a request. A volume that answers several requests one after another passes a [Row] to Complete, so that what the
// answers cause can be sent together.
//
// # Memory
//
// A volume whose blocks lie in memory is also a [Memory]: a transport registers its Regions once and sends straight
// from a View. A view pins the content of its range, not only the memory: a write that would change it waits until the
// view is released, or only briefly if the volume can write the data elsewhere (see [Guard]). A [Lender] lets data be
// written to memory that nobody sees yet, which then replaces what was there: such a write waits for no view, and if it
// consists of whole units it copies nothing.
//
// # Concurrency and order
//
// All methods may be called from any goroutine. Requests that are outstanding together may be executed in any order; a
// Flush covers everything that had completed before it was submitted. Overlapping requests read, write and zero each
// block as a whole; only a discard may be seen half done.
//
// # Errors
//
// Every failure is an [OpError] that wraps one of the kinds in errors.go and, if there is one, the error of the
// operating system.
//
// # Where to change what
//
//	what a volume, a request and their memory are          volume.go, lend.go, row.go
//	options, errors, the errors of the system              options.go, errors.go, errno.go
//	volumes as users name them, sizes as they write them   open.go, size.go
//	checks of requests, and copies of their data           request.go
//	what several kinds share: users, workers, flushes      lifetime.go, pool.go, flushgroup.go
//	    queues of requests, and who is told of a new size  requestqueue.go, watchers.go
//	    readers and writers of a mapping                   guard.go
//	file: a request from Submit to its end                 file.go
//	    opening and creating it, its locks, its name       openfile.go, lock.go, loop.go
//	    many in a directory                                directory.go
//	    the device below                                   device.go
//	    direct I/O, or through the page cache              path.go, direct.go
//	    asynchronous I/O                                   aio.go, aiowrites.go
//	    writes through the page cache                      writer.go
//	    the calls that workers make, and reads at once     fileio.go, filezero.go, storage.go, vector.go
//	    flushes, FUA, and failed write-backs               commit.go, dsyncs.go
//	    blocks that are read and written as a whole        rangelock.go
//	    what each processor has of its own                 lane.go
//	    writes that were received before a standstill      sentry.go
//	mem, and how large it may be                           mem.go, memorylimit.go
//	    its loans, and stripes that move                   memlend.go, places.go, guardplaces.go
//	null                                                   null.go
package blockdev
