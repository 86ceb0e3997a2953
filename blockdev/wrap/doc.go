// Package wrap provides volumes that wrap other volumes: to test what hosts do when storage is slow, fails or hangs,
// and to find storage that returns other data than was written.
//
//	delay:TIME:VOLUME     answers come TIME later, or TIME-TIME for a random time between
//	fail:RULE,…:VOLUME    requests fail by rules, such as read@100-200 or write%0.5=capacity
//	freeze:WHEN:VOLUME    requests wait: WHEN is AFTER+TIME, or manual for [Freezer]
//	check:VOLUME          reads are compared with a checksum of what was written
//
// [Kinds] adds them to blockdev.Open; VOLUME is itself a specification, so they stack:
// "delay:1ms:fail:read%1:disk.img". The functions New… wrap a volume that is already open.
//
// # Ownership and concurrency
//
// A wrapper owns the volume below and closes it. It isn't a blockdev.Memory, so that reads can't bypass it. Requests
// are passed down as copies from a pool of the wrapper's; nothing is allocated once the pool is filled.
package wrap
