package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/listen"
)

// Exit codes.
const (
	ExitOK        = 0
	ExitFailure   = 1 // the work failed
	ExitUsage     = 2 // the command line is invalid
	ExitInterrupt = 130
)

// Main runs root until it ends or a signal asks it to, prints an error as one line, and returns
// the exit code.
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
	root.PersistentPreRunE = checkEmpty
	out, says := &checked{ctx: ctx, w: root.OutOrStdout()}, &messages{w: stderr}
	defer says.flush(ctx)
	defer log.SetOutput(log.Writer())
	log.SetOutput(says) // what libraries have to say, such as net/http
	root.SetOut(out)    // before strictHelp makes the completion command, which keeps it
	root.SetErr(says)
	root.AddCommand(newMan())
	var wrongHelp error
	strictHelp(root, &wrongHelp)
	completions(root)
	keepOrder(root)
	err := root.ExecuteContext(ctx)
	says.account(root.Name())
	if err == nil {
		err = wrongHelp
	}
	if errors.Is(out.err, unix.EPIPE) && (err == nil || errors.Is(err, unix.EPIPE)) {
		return ExitFailure // the reader has seen enough, and needs no explanation
	}
	if out.err != nil && (err == nil || errors.Is(err, out.err)) {
		err = Say(out.err, "standard output: %v", Cause(out.err))
	}
	if err == nil {
		return ExitOK
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		says.conclude("%s: interrupted\n", root.Name())
		return ExitInterrupt
	}
	says.conclude("%s: %s%s\n", root.Name(), oneLine(err), Remedy(err))
	var usage *UsageError
	if errors.As(err, &usage) {
		return ExitUsage
	}
	return ExitFailure
}

// checked remembers the first write error, so that output is either complete or followed by a
// failure.
type checked struct {
	ctx context.Context
	w   io.Writer
	err error
}

// lastWords is how long an interrupted program waits for the readers of its output and messages.
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

// Unwrap returns the underlying writer, for code that checks whether it is a terminal.
func (c *checked) Unwrap() io.Writer { return c.w }

// oneLine returns the text of err on one line, without the library's name in front, since the
// program's name is there already.
func oneLine(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimSpace(lines[i]), "nvme: ")
	}
	return strings.Join(lines, "; ")
}

// Remedy returns what to add to the text of err: what helps if a limit is reached that any part of a program may reach.
// Execute adds it to what a command returns.
func Remedy(err error) string {
	switch {
	case errors.Is(err, unix.EMFILE):
		return "; raise the limit of open files (ulimit -n, or LimitNOFILE= of systemd)"
	case errors.Is(err, unix.ENFILE):
		return "; close files of other programs, or raise the system's limit (sysctl fs.file-max)"
	case listen.Unwatched(err):
		return "; the system watches no more sockets for this user: raise that limit (sysctl fs.epoll.max_user_watches)"
	}
	return ""
}

// Say gives err another text; errors.Is and errors.As still see err.
func Say(err error, format string, a ...any) error { return &said{err, fmt.Sprintf(format, a...)} }

type said struct {
	err  error
	text string
}

func (e *said) Error() string { return e.text }
func (e *said) Unwrap() error { return e.err }
