package main

import (
	"errors"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/fio"
)

// lineJobs holds the jobs that flags describe. As in fio, options before the first --name are those of all jobs, and
// others those of the job named last.
type lineJobs struct {
	common *fio.Job
	named  []*fio.Job
}

// jobName is the option that begins another job.
const jobName = "name"

// set sets an option as it was given.
func (l *lineJobs) set(option, value string) error {
	if option == jobName {
		l.named = append(l.named, l.common.Section(value))
	}
	jobs := l.jobs()
	return jobs[len(jobs)-1].Set(option, value)
}

// jobs returns those that have been described so far.
func (l *lineJobs) jobs() []*fio.Job {
	if len(l.named) == 0 {
		return []*fio.Job{l.common}
	}
	return l.named
}

// apply sets all options that were given on a job of a file.
func (l *lineJobs) apply(j *fio.Job) error {
	return j.Apply(append([]*fio.Job{l.common}, l.named...)...)
}

// optionFlag is an option of fio's jobs as a flag.
type optionFlag struct {
	line   *lineJobs
	option *fio.Option
	text   string
}

// errEmpty is for an option that may have no value in a job file; on the command line that is a flag without a
// value.
var errEmpty = errors.New("it is empty; give it a value, or leave the flag out")

// addOption defines the flag, and hidden ones for its aliases.
func addOption(fl *pflag.FlagSet, o *fio.Option, l *lineJobs) {
	for i, name := range append([]string{o.Name}, o.Aliases...) {
		f := fl.VarPF(&optionFlag{l, o, o.Default}, name, "", o.Usage)
		if o.Flag {
			f.NoOptDefVal = "true"
		}
		if o.Choices != nil {
			cli.Offer(fl, name, o.Choices)
		}
		f.Hidden = i > 0
	}
}

// addIdle defines hidden flags for those of fio's options that change nothing here but occur in job files and
// scripts.
func addIdle(fl *pflag.FlagSet, taken *fio.Idles) {
	names, alone := fio.IdleNames()
	for _, name := range names {
		f := fl.VarPF(&idleFlag{taken, name}, name, "", "without effect here")
		if slices.Contains(alone, name) {
			f.NoOptDefVal = "1"
		}
		f.Hidden = true
	}
}

// idleFlag is the flag of one such option.
type idleFlag struct {
	taken *fio.Idles
	name  string
}

func (f *idleFlag) String() string { return "" }
func (f *idleFlag) Type() string   { return "value" }

// Set records the option, unless it would change something.
func (f *idleFlag) Set(v string) error {
	if v == "" {
		return errEmpty
	}
	err := f.taken.Take(f.name, v)
	var unknown *fio.UnknownOptionError
	if errors.As(err, &unknown) && unknown.Remedy != "" {
		return errors.New(unknown.Remedy) // the flag's name and value are said already
	}
	return err
}

// timeFlag is the flag of a time above 0, which is written as in fio's jobs.
type timeFlag struct{ to *time.Duration }

func (f *timeFlag) String() string { return "" }
func (f *timeFlag) Type() string   { return "time" }

func (f *timeFlag) Set(v string) error {
	t, err := fio.ParseTime(v)
	if err == nil && t <= 0 {
		err = errors.New("want more than 0, as 10s")
	}
	*f.to = t
	return err
}

func (f *optionFlag) String() string { return f.text }
func (f *optionFlag) Type() string {
	if f.option.Flag {
		return "bool"
	}
	return f.option.Type
}

// Set sets the option on the job it belongs to.
func (f *optionFlag) Set(v string) error {
	if v == "" {
		return errEmpty
	}
	f.text = v
	err := f.line.set(f.option.Name, v)
	if why := errors.Unwrap(err); why != nil {
		return why // the flag's name and value are said already
	}
	return err
}
