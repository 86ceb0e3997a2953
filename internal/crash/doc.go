// Package crash simulates power failures, for tests of whatever promises to survive them.
//
// A [Medium] is storage in memory that remembers, for each unit that reaches it whole (the
// sector of a disk, the 8-byte word of persistent memory), every version that was written
// since the last one that is certain. [Medium.Crash] gives a content that the hardware could
// have after a power failure: of each unit any of those versions.
//
// A [Ledger] is the other side: what the writer was told. It knows of each block which
// contents may be found after a crash, given which writes and flushes were acknowledged, and
// says what is lost, torn or invented. [Stamp] makes contents that name their block and
// their write, so that a block that is a mixture of two shows itself.
//
// The order of checking matters where requests run while the power fails: take
// [Ledger.Floor] first, the state of the medium second, and check third. The floor only
// rises and the set of writes only grows, so no legal state is refused.
//
// Nothing here is random by itself: callers give the source, and with it the seed. A Medium
// and a Ledger may be used from any goroutine.
package crash
