package fio

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// Logs says which log files are written for a job.
type Logs struct {
	prefixes [logKinds]*string // the prefixes of file names, nil if not requested; empty for the job's name
	together bool              // the clones of a job, and jobs with the same prefix, share a file
	offsets  bool              // lines include the offset of the operation
	longest  bool              // latencies of intervals are the longest, and not the average
	unix     bool              // times count from 1970, and not from when measuring began
}

// Kinds of logs.
const (
	bwLog = iota
	iopsLog
	latLog
	logKinds
)

// logOptions are the options that request them.
var logOptions = [logKinds]string{"write_bw_log", "write_iops_log", "write_lat_log"}

// logEndings are the endings of file names, by kind. Latencies are completion latencies: there is no file for
// submission latencies, which aren't measured.
var logEndings = [logKinds][]string{{"bw"}, {"iops"}, {"clat", "lat"}}

// setLog returns a function that requests a log.
func setLog(kind int) func(*Job, string) error {
	return func(j *Job, v string) error {
		if strings.HasPrefix(v, "-") { // usually another option, on a command line that gives this one no value
			return errors.New("want what the names of the files are to begin with, as mine")
		}
		j.Logs.prefixes[kind] = &v
		return nil
	}
}

func setLogInterval(j *Job, v string) error {
	n, err := parseCount(v)
	if err == nil && n > int64(time.Hour/time.Millisecond) {
		err = errors.New("want at most an hour, 3600000")
	}
	j.LogEvery = time.Duration(n) * time.Millisecond
	return err
}

// logsEach reports whether logs have a line for each operation.
func (j *Job) logsEach() bool { return j.Logged() != "" && j.LogEvery == 0 }

// Logged returns the first option that requests logs, or "" if none does.
func (j *Job) Logged() string {
	for kind, prefix := range j.Logs.prefixes {
		if prefix != nil {
			return logOptions[kind]
		}
	}
	return ""
}

// Log is a file with the course over time of a job's clone.
type Log struct {
	Option string // that requests it
	Path   string
	kind   int
	of     *Logs
}

// LogsOf returns the log files of a clone, with the names that fio gives them.
func (j *Job) LogsOf(clone int) []Log {
	var all []Log
	for kind, prefix := range j.Logs.prefixes {
		if prefix == nil {
			continue
		}
		name := cmp.Or(*prefix, j.Name)
		for _, ending := range logEndings[kind] {
			path := fmt.Sprintf("%s_%s.%d.log", name, ending, j.Number+clone+1)
			if j.Logs.together {
				path = fmt.Sprintf("%s_%s.log", name, ending)
			}
			all = append(all, Log{logOptions[kind], path, kind, &j.Logs})
		}
	}
	return all
}

// Write writes the log of a clone as fio does: lines of milliseconds, a value (KiB or operations per second, or the
// average or maximum in nanoseconds), the direction (0 reads, 1 writes, 2 trims), the bytes and, if requested, the
// offset of a single operation, and its priority, which is always 0.
func (l Log) Write(to io.Writer, r *loadgen.JobResult) error {
	w := bufio.NewWriter(to)
	began := int64(0)
	if l.of.unix {
		began = r.Began.UnixMilli()
	}
	for i := range r.Windows {
		for op := range loadgen.Directions {
			if value, ok := l.value(r, &r.Windows[i], loadgen.Op(op)); ok {
				l.line(w, began+r.Windows[i].End.Milliseconds(), value, loadgen.Op(op), 0, 0)
			}
		}
	}
	for _, entries := range r.Entries {
		for i := range entries {
			e := &entries[i]
			l.line(w, began+e.End.Milliseconds(), l.single(e), e.Op, e.Length, e.Offset)
		}
	}
	return w.Flush()
}

func (l Log) line(w io.Writer, end, value int64, op loadgen.Op, length int, offset int64) {
	if l.of.offsets {
		fmt.Fprintf(w, "%d, %d, %d, %d, %d, 0\n", end, value, op, length, offset)
		return
	}
	fmt.Fprintf(w, "%d, %d, %d, %d, 0\n", end, value, op, length)
}

// single returns the value of one operation in a log.
func (l Log) single(e *loadgen.Entry) int64 {
	switch l.kind {
	case bwLog:
		// fio uses KB here, but KiB for intervals.
		return int64(float64(e.Length) * float64(time.Millisecond) / max(float64(e.Latency), 1))
	case iopsLog:
		return 1
	}
	return int64(e.Latency)
}

// value returns the value of an interval in a log; false for none. An interval in which nothing ended has no
// latency, but a rate of 0.
func (l Log) value(r *loadgen.JobResult, w *loadgen.Window, op loadgen.Op) (int64, bool) {
	switch l.kind {
	case bwLog:
		return int64(float64(w.Bytes[op]) / w.Length.Seconds() / 1024), r.Spec.Does(op)
	case iopsLog:
		return int64(float64(w.IOs[op]) / w.Length.Seconds()), r.Spec.Does(op)
	}
	switch {
	case w.IOs[op] == 0:
		return 0, false
	case l.of.longest:
		return int64(w.Longest[op]), true
	}
	return int64(w.Latency[op]) / int64(w.IOs[op]), true
}
