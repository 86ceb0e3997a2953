package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

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
				if err := createLog(l); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// createLog creates a log. It leaves a pipe alone: opening it would wait for its reader, and closing it would tell that
// there is no more to come.
func createLog(l fio.Log) error {
	if isPipe(l.Path) {
		return nil
	}
	f, err := os.Create(l.Path)
	if err != nil {
		return cli.CreateError(l.Option+":", l.Path, err)
	}
	if err := f.Close(); err != nil {
		return cli.FileError(l.Option+":", l.Path, err)
	}
	return nil
}

func isPipe(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeNamedPipe != 0
}

// writeLogs writes the logs of jobs that have run.
func writeLogs(ctx context.Context, jobs []*fio.Job, res *loadgen.Result) error {
	var errs []error
	rest := res.Jobs
	for _, j := range jobs {
		for clone := range j.NumJobs {
			for _, l := range j.LogsOf(clone) {
				errs = append(errs, writeLog(ctx, l, &rest[clone]))
			}
		}
		rest = rest[j.NumJobs:]
	}
	return errors.Join(errs...)
}

// logGrace is how long an interrupted run waits for a pipe to take a log: perhaps nobody reads it.
const logGrace = time.Second

// writeLog appends to a log, which several jobs may share.
func writeLog(ctx context.Context, l fio.Log, r *loadgen.JobResult) error {
	write := func() (struct{}, error) {
		f, err := os.OpenFile(l.Path, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			err = errors.Join(l.Write(f, r), f.Close())
		}
		return struct{}{}, err
	}
	if !isPipe(l.Path) {
		ctx = context.WithoutCancel(ctx)
	}
	if _, err := cli.Leaving(ctx, logGrace, write); err != nil {
		return cli.FileError(l.Option+":", l.Path, err)
	}
	return nil
}
