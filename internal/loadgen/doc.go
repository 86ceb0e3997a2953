// Package loadgen drives a block device as fio does: jobs of random or sequential reads and
// writes at a given depth, measured.
//
// It is asynchronous from end to end. A job keeps its depth by submitting the next operation
// in the completion of the one before, in the context of whoever completed it, so that a
// transport which runs to completion is not slowed by a hand-over between goroutines.
//
// A Queue and its buffers belong to one job. Completions of one queue may come from any
// goroutine. Nothing is allocated per operation.
package loadgen
