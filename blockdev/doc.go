// Package blockdev says what a volume is, and holds its plain kinds: a file or block device,
// memory, and null. Persistent memory is a kind that package persist adds.
//
// # Use
//
// [Open] makes a volume of a specification as a user writes it ("disk.img", "mem:1GiB",
// "null:1TiB"). A [Request] is made once and submitted again and again; it belongs to the
// volume from [Volume.Submit] until its Complete is called, and so do the bytes of its Bufs.
// A volume that can answer at once does so before Submit returns; nothing is allocated for
// a request. One that answers several in a row says so ([Row]), so that what they lead to can be
// sent at once.
//
// # Memory
//
// A volume whose blocks lie in memory is also a [Memory]: a transport registers its Regions
// once and sends straight from a View. A view pins the content of its range, not only its
// place: a write that would change it waits until the view is released, for a moment where the
// volume can be written elsewhere (see [Guard]). A [Lender] has data written to memory that nobody
// sees yet, and takes that in the place of what was there: such a write waits for no view, and
// copies nothing where it is of whole units.
//
// # Concurrency and order
//
// All methods may be called from any goroutine. Requests that are outstanding together may
// be executed in any order; a Flush covers what had completed before it was submitted. Where
// [Info] promises atomic blocks, a block is read and written whole also by requests that
// meet on it.
//
// # Errors
//
// Every failure is an [OpError] that wraps one kind of errors.go and, where there is one,
// the error of the operating system.
package blockdev
