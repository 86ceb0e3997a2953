package cli

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// interruptions returns the signals that ask a program to end. SIGHUP, sent when a terminal is closed, is one of them,
// unless nohup makes the program ignore it.
func interruptions() []os.Signal {
	all := []os.Signal{os.Interrupt, unix.SIGTERM}
	if !signal.Ignored(unix.SIGHUP) {
		all = append(all, unix.SIGHUP)
	}
	return all
}

// Hangups delivers SIGHUP while ctx lasts, to a command for which it is a request to read its files again. The signal
// no longer interrupts the program, and does nothing once ctx has ended: then the program is about to end anyway.
func Hangups(ctx context.Context) <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Ignore(unix.SIGHUP) // removes Main's handling; Stop restores this
	signal.Notify(c, unix.SIGHUP)
	context.AfterFunc(ctx, func() { signal.Stop(c) })
	return c
}
