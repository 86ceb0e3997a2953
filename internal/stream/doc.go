// Package stream copies memory past the processor's caches (non-temporal stores): what is written to memory that nobody
// reads soon need not be fetched first, nor put others' data out of the caches.
//
// Such stores may be seen by other processors later than those that follow them. A fence waits for them, and so does each
// locked instruction, by one of which whoever hands data to another goroutine does so. On amd64 only; elsewhere a copy is
// a usual one.
package stream
