// Package loadgen drives a block device as fio does: jobs of random or sequential reads and
// writes at a given depth or rate, measured and, if asked for, verified.
//
// It is asynchronous from end to end. A job without a rate keeps its depth by submitting the
// next operation in the completion of the one before, in the context of whoever completed it,
// so that a transport which runs to completion is not slowed by a hand-over between goroutines.
//
// A job with a rate is an open loop: its operations are due at times that don't depend on when
// others end. An operation that finds the job's whole depth in use waits, and its latency
// counts from when it was due. So a device that stands still for a second is seen by every
// operation of that second, not by one only (coordinated omission).
//
// [Run] runs several [Spec] at once, each as NumJobs clones. A Queue and its buffers belong to
// one clone. Completions of one queue may come from any goroutine. Nothing is allocated per
// operation; what is gathered about the course of a run is allocated once per Options.Interval.
package loadgen
