package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

var errDraining = errors.New("draining: hosts are refused")

// readiness returns why hosts can't connect now, or nil.
func (s *server) readiness() error {
	if s.target.Draining() {
		return errDraining
	}
	return nil
}

// Drain implements control.Target.
func (s *server) Drain(ctx context.Context, timeout *time.Duration) error {
	limit := s.drain
	if timeout != nil {
		limit = *timeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s.log.Info("draining", "timeout", limit)
	s.service.say("STATUS=draining")
	err := s.target.Drain(ctx)
	if err != nil {
		s.log.Warn("drained", "err", err)
	} else {
		s.log.Info("drained")
	}
	return err
}

// Resume implements control.Target.
func (s *server) Resume() {
	s.target.Resume()
	s.log.Info("hosts are taken again")
	s.service.say("STATUS=" + s.exported())
}

const (
	// closeHint is how long closing may take before the user is told what it waits for.
	closeHint = 2 * closeTime
	// closeGrace is how long closing may continue after a signal: a signal that arrives while nothing hangs has no
	// effect.
	closeGrace = time.Second
)

// end closes everything. It waits for volumes for as long as they have commands outstanding, and for a change in
// progress, which may take forever; a signal ends the wait.
func (s *server) end(interrupted chan os.Signal) error {
	signal.Notify(interrupted, os.Interrupt, unix.SIGTERM)
	defer signal.Stop(interrupted)
	closed := make(chan struct{})
	go func() {
		s.close()
		close(closed)
	}()
	hint := time.After(closeHint)
	var given <-chan time.Time
	for {
		select {
		case <-closed:
			return s.incomplete
		case <-hint:
			s.log.Warn("a volume still has commands under way, or a change is being made, and is waited for; another signal ends that")
		case <-interrupted:
			if given == nil {
				given = time.After(closeGrace)
			}
		case <-given:
			return errors.New("interrupted while a volume had commands under way, or a change was being made; what was flushed is durable")
		}
	}
}

// stop drains the target before it is closed. A second signal ends the wait; further ones are left in interrupted.
func (s *server) stop(interrupted chan os.Signal) {
	signal.Notify(interrupted, os.Interrupt, unix.SIGTERM)
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer cancel()
	s.service.stopping(s.drain + 2*closeTime)
	_ = s.Drain(ctx, nil) // the error is logged, and the program ends anyway
	if ctx.Err() != nil {
		<-interrupted // the second, which ctx was sent as well
	}
}
