// Package loadgen drives a block device as fio does: jobs of random or sequential reads and writes at a given depth
// or rate, measured and, on request, verified.
//
// It is asynchronous throughout. A job without a rate keeps its depth by submitting the next operation in the
// completion of the previous one, in the context of the completer, so that a transport that runs to completion is
// not slowed by hand-overs between goroutines.
//
// A job with a rate is an open loop: its operations are due at times that don't depend on when others end. An
// operation that finds the job's whole depth in use waits, and its latency counts from when it was due. So if a
// device stalls for a second, every operation of that second shows it, not just one (coordinated omission).
//
// [Run] runs several [Spec] at once, each as NumJobs clones. A Queue and its buffers belong to one clone.
// Completions of one queue may come from any goroutine. Nothing is allocated per operation, except for logs of each and
// for what Spec.Backlog has to be read back, which grow as they need; the record of a run over time is allocated once
// per Options.Interval.
//
// # Where to change what
//
//	what to run, and what is wrong with it                 spec.go, directions.go, check.go
//	devices, queues and operations                         queue.go
//	a run, its specs, their clones                         run.go, task.go, job.go
//	the next operation of a clone                          operation.go
//	    where it goes                                      pattern.go, permutation.go, zipf.go
//	    when it is due at a rate, and who starts it then   schedule.go, pacer.go
//	    rests before it; the write behind a trim           think.go, rewrite.go
//	    the data that it writes                            content.go
//	the greatest depth that meets a latency                seek.go
//	data that is checked: stamps, and what is to be there  stamp.go, ledger.go, backlog.go
//	what is measured, and its course over time             result.go, histogram.go, course.go
//	what is done before that, in a ramp                    ramp.go
package loadgen
