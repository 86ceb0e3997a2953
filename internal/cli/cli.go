// Package cli is what the two programs share in meeting people: sizes and endpoints as they
// are written, exit codes, and the way an error is shown.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
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
	ctx, stop := signal.NotifyContext(context.Background(), interruptions()...)
	defer stop()
	// A reader that goes away (`| head`) makes a write fail; the signal would end the program
	// before it has disconnected, and leave the controller to the target's keep alive timer.
	signal.Ignore(unix.SIGPIPE)
	return Execute(ctx, root, os.Stderr)
}

// Execute runs root and returns the exit code.
func Execute(ctx context.Context, root *cobra.Command, stderr io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(usage)
	root.AddCommand(newMan())
	var wrongHelp error
	helpers(root, &wrongHelp)
	completions(root)
	out := &checked{ctx: ctx, w: root.OutOrStdout()}
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = wrongHelp
	}
	if errors.Is(out.err, unix.EPIPE) && (err == nil || errors.Is(err, unix.EPIPE)) {
		return ExitFailure // who read it has seen enough, and needs no explanation
	}
	if out.err != nil && (err == nil || errors.Is(err, out.err)) {
		err = Say(out.err, "standard output: %v", Cause(out.err))
	}
	if err == nil {
		return ExitOK
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		fmt.Fprintf(stderr, "%s: interrupted\n", root.Name())
		return ExitInterrupt
	}
	fmt.Fprintf(stderr, "%s: %s\n", root.Name(), oneLine(err))
	var usage *UsageError
	if errors.As(err, &usage) {
		return ExitUsage
	}
	return ExitFailure
}

// checked remembers the first error of writing, so that what people and scripts read is
// either whole or followed by a failure.
type checked struct {
	ctx context.Context
	w   io.Writer
	err error
}

// lastWords is how long a program that was interrupted waits for whoever reads what it prints.
const lastWords = time.Second

func (c *checked) Write(b []byte) (int, error) {
	if c.err != nil && c.ctx.Err() != nil {
		return 0, c.err
	}
	n, err := Leaving(c.ctx, lastWords, func() (int, error) { return c.w.Write(b) })
	if c.err == nil {
		c.err = err
	}
	return n, err
}

// Unwrap is where it is written to, for those who ask whether that is a terminal.
func (c *checked) Unwrap() io.Writer { return c.w }

// oneLine is the text of err on one line, without the library's name in front, which the
// program's stands for already.
func oneLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimSpace(lines[i]), "nvme: ")
	}
	return strings.Join(lines, "; ")
}

// Say gives err another text; errors.Is and errors.As see err as before.
func Say(err error, format string, a ...any) error { return &said{err, fmt.Sprintf(format, a...)} }

type said struct {
	err  error
	text string
}

func (e *said) Error() string { return e.text }
func (e *said) Unwrap() error { return e.err }

// NoArgs refuses arguments; cobra's own check doesn't say what to do.
func NoArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage("%s takes flags only, not %q; see %s --help", c.Name(), args[0], c.CommandPath())
	}
	return nil
}

// flagError says what is wrong with a flag, what it takes, and where to read on.
func flagError(c *cobra.Command, err error) error {
	if name := c.Flags().Arg(0); c.HasSubCommands() && name != "" {
		return unknownCommand(c, name) // whose flags they are
	}
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		err = fmt.Errorf("--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), wanted(bad))
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		if meant := similar(c.Flags(), unknown.GetSpecifiedName()); meant != "" {
			return Usage("%w; is --%s meant?", err, meant)
		}
	}
	return Usage("%w; see %s --help", err, c.CommandPath())
}

// leastName is the length from which on the beginning of a flag's name says which is meant.
const leastName = 3

// similar is the flag whose name begins as name does, or ends as it does, if there is only one, or else one that is
// spelled nearly the same; "" for none.
func similar(flags *pflag.FlagSet, name string) string {
	if len(name) < leastName {
		return ""
	}
	var found, all []string
	flags.VisitAll(func(f *pflag.Flag) {
		all = append(all, f.Name)
		if strings.HasPrefix(f.Name, name) || strings.HasSuffix(f.Name, "-"+name) || strings.HasPrefix(name, f.Name+"-") {
			found = append(found, f.Name)
		}
	})
	if len(found) != 1 {
		return Nearest(name, all)
	}
	return found[0]
}

// wanted says what the value of a flag looks like.
func wanted(bad *pflag.InvalidValueError) string {
	switch bad.GetFlag().Value.Type() {
	case "size":
		if errors.Is(bad, blockdev.ErrTooLarge) {
			return blockdev.ErrTooLarge.Error()
		}
		return "want a size, as 4096, 64MiB or 1GiB"
	case "duration":
		return "want a time, as 500ms, 10s or 1m"
	case "int":
		return "want a whole number"
	case "intSlice":
		return "want whole numbers with commas between, as 1,4,16"
	case "uint8":
		return fmt.Sprintf("want a number from 0 to %d", math.MaxUint8)
	case "uint32":
		return fmt.Sprintf("want a number from 0 to %d", uint32(math.MaxUint32))
	case "uint64":
		return "want a number, as 4660 or 0x1234"
	case "bool":
		return "want true or false"
	}
	return bad.Unwrap().Error()
}

// CheckNQN checks the NVMe Qualified Name that a flag gives.
func CheckNQN(flag, nqn string) error {
	if err := nvme.CheckNQN(nqn); err != nil {
		return Usage("%s: %w", flag, err)
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

// UnmarshalText reads a size from a file.
func (s *Size) UnmarshalText(b []byte) error { return s.Set(string(b)) }

// MarshalText writes it as it is read: for people, where that is exact.
func (s Size) MarshalText() ([]byte, error) {
	text := blockdev.FormatSize(int64(s))
	if n, err := blockdev.ParseSize(text); err != nil || n != int64(s) {
		text = strconv.FormatInt(int64(s), 10)
	}
	return []byte(text), nil
}
