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

// checkLogs says what is missing for the logs that are asked for.
func (j *Job) checkLogs() error {
	if option := j.Logged(); option != "" && j.LogEvery == 0 {
		return fmt.Errorf("%s needs log_avg_msec, as log_avg_msec=1000: a line is of an interval, not of each operation", option)
	}
	return nil
}

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
	Option string // that asks for it
	Path   string
	kind   int
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
			all = append(all, Log{logOptions[kind], path, kind})
		}
	}
	return all
}

// Write writes the course of a clone as fio does: lines of milliseconds, a value (KiB or operations a second, or
// nanoseconds on average), the direction (0 reads, 1 writes, 2 trims), and what there is only of single operations.
func (l Log) Write(to io.Writer, r *loadgen.JobResult) error {
	w := bufio.NewWriter(to)
	for i := range r.Windows {
		for op := range loadgen.Directions {
			if value, ok := l.value(r, &r.Windows[i], loadgen.Op(op)); ok {
				fmt.Fprintf(w, "%d, %d, %d, 0, 0\n", r.Windows[i].End.Milliseconds(), value, op)
			}
		}
	}
	return w.Flush()
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
