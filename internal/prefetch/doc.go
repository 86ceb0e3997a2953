// Package prefetch has the processor fetch memory into its caches that will be needed soon, while the program goes
// on with something else: for random accesses to more memory than caches hold, each of which would be waited for.
//
// It reads nothing as far as the program can tell. An address where nothing is, or where a page would have to
// be read first, is passed over. Processors without it here (not amd64 nor arm64) do nothing.
package prefetch
