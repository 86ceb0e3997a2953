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

// readiness says why hosts can't connect now.
func (s *server) readiness() error {
	if s.target.Draining() {
		return errDraining
	}
	return nil
}

// Drain is control.Target's.
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

// Resume is control.Target's.
func (s *server) Resume() {
	s.target.Resume()
	s.log.Info("hosts are taken again")
	s.service.say("STATUS=" + s.exported())
}

// stop drains the target before it is closed. A second signal ends the wait.
func (s *server) stop() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer cancel()
	s.service.stopping(s.drain + 2*closeTime)
	_ = s.Drain(ctx, nil) // it is logged, and the program ends anyway
}
