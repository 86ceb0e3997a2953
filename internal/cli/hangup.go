package cli

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// interruptions are the signals that ask a program to end. That of a terminal that is closed is one
// of them, but where nohup has the program ignore it.
func interruptions() []os.Signal {
	all := []os.Signal{os.Interrupt, unix.SIGTERM}
	if !signal.Ignored(unix.SIGHUP) {
		all = append(all, unix.SIGHUP)
	}
	return all
}

// Hangups delivers the signal HUP while ctx lasts, to a command that takes it for a request to read
// its files again. It interrupts the program no more, and does nothing once ctx has ended: the
// program is about to end by itself.
func Hangups(ctx context.Context) <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Ignore(unix.SIGHUP) // no longer Main's, and what Stop goes back to
	signal.Notify(c, unix.SIGHUP)
	context.AfterFunc(ctx, func() { signal.Stop(c) })
	return c
}
