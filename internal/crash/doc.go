// Package crash simulates power failures, for tests of code that promises to survive them.
//
// A [Medium] is storage in memory that remembers, for each unit that is written atomically (the
// sector of a disk, the 8-byte word of persistent memory), every version that was written since
// the last durable one. [Medium.Crash] returns contents that the hardware could have after a
// power failure: for each unit, any of those versions.
//
// A [Ledger] is the other side: what the writer was told. It knows for each block which
// contents may be found after a crash, given which writes and flushes were acknowledged, and
// says what is lost, torn or invented. [Stamp] makes contents that name their block and their
// write, so that a mixture of two is recognized.
//
// The order of checking matters if requests run while the power fails: first take
// [Ledger.Floor], then the state of the medium, and then check. The floor only rises and the
// set of writes only grows, so no legal state is refused.
//
// Nothing here has its own source of randomness: callers pass the source, and with it the seed.
// A Medium and a Ledger may be used from any goroutine.
package crash
