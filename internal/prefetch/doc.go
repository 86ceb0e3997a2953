// Package prefetch makes the processor fetch memory that will be needed soon into its caches, while the program does
// something else. It is for random accesses to more memory than the caches hold, each of which would otherwise stall.
//
// Prefetching has no effect that the program can observe. An address that isn't mapped, or whose page would have to be
// read in first, is ignored. On processors other than amd64 and arm64 it does nothing.
package prefetch
