package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// results is the file that takes what bench prints, in the place of standard output.
type results struct {
	ctx  context.Context
	file *os.File // nil for standard output
	path string
	err  error // the first one
}

// openResults has c print to a file, which is emptied first, as fio does; to standard output if path is "" or -.
func openResults(c *cobra.Command, path string) (*results, error) {
	r := &results{ctx: c.Context(), path: path}
	if path == "" || path == "-" {
		return r, nil
	}
	var err error
	r.file, err = cli.Leaving(r.ctx, 0, func() (*os.File, error) { return os.Create(path) }) // a pipe waits for its reader
	if err != nil {
		return nil, cli.CreateError("--output", path, err)
	}
	c.SetOut(r)
	return r, nil
}

// Write remembers the first error: what prints a table ignores it.
func (r *results) Write(b []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := cli.Leaving(r.ctx, logGrace, func() (int, error) { return r.file.Write(b) })
	if err != nil {
		r.err = cli.FileError("--output", r.path, err)
	}
	return n, r.err
}

// close closes the file after a run that ended with err, and returns what went wrong.
func (r *results) close(err error) error {
	if r.file == nil {
		return err
	}
	closed := r.file.Close()
	switch {
	case r.err != nil && !errors.Is(err, r.err):
		return errors.Join(err, r.err)
	case r.err == nil && closed != nil:
		return errors.Join(err, cli.FileError("--output", r.path, closed))
	}
	return err
}
