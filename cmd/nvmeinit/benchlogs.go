package main

import (
	"errors"
	"os"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fio"
	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// createLogs creates the logs of jobs, or empties those of an earlier run, as fio does: if they can't be written at
// the end, that should be an error at once.
func createLogs(jobs []*fio.Job) error {
	for _, j := range jobs {
		for clone := range j.NumJobs {
			for _, l := range j.LogsOf(clone) {
				f, err := os.Create(l.Path)
				if err != nil {
					return cli.CreateError(l.Option+":", l.Path, err)
				}
				if err := f.Close(); err != nil {
					return cli.FileError(l.Option+":", l.Path, err)
				}
			}
		}
	}
	return nil
}

// writeLogs writes the logs of jobs that have run.
func writeLogs(jobs []*fio.Job, res *loadgen.Result) error {
	var errs []error
	rest := res.Jobs
	for _, j := range jobs {
		for clone := range j.NumJobs {
			for _, l := range j.LogsOf(clone) {
				errs = append(errs, writeLog(l, &rest[clone]))
			}
		}
		rest = rest[j.NumJobs:]
	}
	return errors.Join(errs...)
}

// writeLog appends to a log, which several jobs may share.
func writeLog(l fio.Log, r *loadgen.JobResult) error {
	f, err := os.OpenFile(l.Path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		err = errors.Join(l.Write(f, r), f.Close())
	}
	if err != nil {
		return cli.FileError(l.Option+":", l.Path, err)
	}
	return nil
}
