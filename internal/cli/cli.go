// Package cli is what the two programs share in meeting people: sizes and endpoints as they
// are written, exit codes, and the way an error is shown.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Exit codes.
const (
	ExitOK        = 0
	ExitFailure   = 1 // the work failed
	ExitUsage     = 2 // the command line can't be
	ExitInterrupt = 130
)

// UsageError is a mistake on the command line.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usage makes a UsageError.
func Usage(format string, a ...any) error { return &UsageError{fmt.Errorf(format, a...)} }

// Main runs root until it ends or a signal asks it to, writes an error as one line, and
// returns the exit code.
func Main(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	return Execute(ctx, root, os.Stderr)
}

// Execute runs root and returns the exit code.
func Execute(ctx context.Context, root *cobra.Command, stderr io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return Usage("%w; see %s --help", err, c.CommandPath())
	})
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err)
	var usage *UsageError
	switch {
	case errors.As(err, &usage):
		return ExitUsage
	case errors.Is(err, context.Canceled):
		return ExitInterrupt
	}
	return ExitFailure
}

// NoArgs refuses arguments; cobra's own check doesn't say what to do.
func NoArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage("%s takes no argument, but got %q; see %s --help", c.CommandPath(), args[0], c.CommandPath())
	}
	return nil
}

// Size is a flag of bytes, written as 4k, 64MiB or 1GiB (see blockdev.ParseSize).
type Size int64

func (s *Size) String() string {
	if *s == 0 {
		return ""
	}
	return blockdev.FormatSize(int64(*s))
}

// Set reads a size.
func (s *Size) Set(v string) error {
	n, err := blockdev.ParseSize(v)
	*s = Size(n)
	return err
}

// Type is how help names the value.
func (s *Size) Type() string { return "size" }
