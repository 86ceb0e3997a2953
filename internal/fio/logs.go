package fio

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// Logs say which files have the course of a job.
type Logs struct {
	prefixes [logKinds]*string // what the names of files begin with, if they are wanted; empty for the job's name
	together bool              // the clones of a job, and jobs with the same prefix, share a file
	offsets  bool              // lines have the offset of the operation
}

// Kinds of logs.
const (
	bwLog = iota
	iopsLog
	latLog
	logKinds
)

// logOptions are the options that ask for them.
var logOptions = [logKinds]string{"write_bw_log", "write_iops_log", "write_lat_log"}

// logEndings are what the names of a kind's files end with. Latencies are those of completions: the time that it takes
// to submit an operation has no file of its own, as it isn't measured.
var logEndings = [logKinds][]string{{"bw"}, {"iops"}, {"clat", "lat"}}

// setLog asks for a log.
func setLog(kind int) func(*Job, string) error {
	return func(j *Job, v string) error {
		if strings.HasPrefix(v, "-") { // another option, as a rule, on a command line where this one has no value
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

// Logged is the first option that asks for logs; empty where none does.
func (j *Job) Logged() string {
	for kind, prefix := range j.Logs.prefixes {
		if prefix != nil {
			return logOptions[kind]
		}
	}
	return ""
}

// Log is a file that has the course of a job's clone.
type Log struct {
	Option  string // that asks for it
	Path    string
	kind    int
	offsets bool
}

// LogsOf are the files of a clone, with the names that fio gives them.
func (j *Job) LogsOf(clone int) []Log {
	var all []Log
	for kind, prefix := range j.Logs.prefixes {
		if prefix == nil {
			continue
		}
		name := *prefix
		if name == "" {
			name = j.Name
		}
		for _, ending := range logEndings[kind] {
			path := fmt.Sprintf("%s_%s.%d.log", name, ending, j.Number+clone+1)
			if j.Logs.together {
				path = fmt.Sprintf("%s_%s.log", name, ending)
			}
			all = append(all, Log{logOptions[kind], path, kind, j.Logs.offsets})
		}
	}
	return all
}

// Write writes the course of a clone as fio does: lines of milliseconds, a value (KiB or operations a second, or
// nanoseconds on average), the direction (0 reads, 1 writes, 2 trims), the bytes and, if that is wanted, the offset of a
// single operation, and its priority, which it hasn't.
func (l Log) Write(to io.Writer, r *loadgen.JobResult) error {
	w := bufio.NewWriter(to)
	for i := range r.Windows {
		for op := range loadgen.Directions {
			if value, ok := l.value(r, &r.Windows[i], loadgen.Op(op)); ok {
				l.line(w, r.Windows[i].End, value, loadgen.Op(op), 0, 0)
			}
		}
	}
	for _, entries := range r.Entries {
		for i := range entries {
			e := &entries[i]
			l.line(w, e.End, l.single(e), e.Op, e.Length, e.Offset)
		}
	}
	return w.Flush()
}

func (l Log) line(w io.Writer, end time.Duration, value int64, op loadgen.Op, length int, offset int64) {
	if l.offsets {
		fmt.Fprintf(w, "%d, %d, %d, %d, %d, 0\n", end.Milliseconds(), value, op, length, offset)
		return
	}
	fmt.Fprintf(w, "%d, %d, %d, %d, 0\n", end.Milliseconds(), value, op, length)
}

// single is what a log has of one operation.
func (l Log) single(e *loadgen.Entry) int64 {
	switch l.kind {
	case bwLog:
		// KB, as fio has it, where those of an interval are KiB.
		return int64(e.Length) * int64(time.Millisecond) / max(int64(e.Latency), 1)
	case iopsLog:
		return 1
	}
	return int64(e.Latency)
}

// value is what a log has of an interval; false for nothing. Where nothing ended there is no latency, but a rate of 0.
func (l Log) value(r *loadgen.JobResult, w *loadgen.Window, op loadgen.Op) (int64, bool) {
	switch l.kind {
	case bwLog:
		return int64(float64(w.Bytes[op]) / w.Length.Seconds() / 1024), r.Spec.Does(op)
	case iopsLog:
		return int64(float64(w.IOs[op]) / w.Length.Seconds()), r.Spec.Does(op)
	}
	if w.IOs[op] == 0 {
		return 0, false
	}
	return int64(w.Latency[op]) / int64(w.IOs[op]), true
}
