// Package wrap holds volumes that stand before others: to try what hosts do when storage is
// slow, fails or hangs, and to find storage that returns other data than was written.
//
//	delay:TIME:VOLUME     answers come TIME later, or TIME-TIME for a random time between
//	fail:RULE,…:VOLUME    requests fail by rules, such as read@100-200 or write%0.5=capacity
//	freeze:WHEN:VOLUME    requests wait: WHEN is AFTER+TIME, or manual for [Freezer]
//	check:VOLUME          reads are compared with a checksum of what was written
//
// [Kinds] gives them to blockdev.Open; VOLUME is a specification again, so they stack:
// "delay:1ms:fail:read%1:disk.img". The functions New… wrap a volume that is open.
//
// # Ownership and concurrency
//
// A wrapper owns the volume below and closes it. It doesn't lend memory (blockdev.Memory),
// so that reads can't pass it by. Requests go down as copies out of a pool of the wrapper's;
// nothing is allocated once that is filled.
package wrap
