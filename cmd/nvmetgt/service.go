package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// service notifies systemd, or another supervisor that speaks its protocol, if that started the program with
// Type=notify; otherwise it does nothing. Failures to notify are ignored: systemd has its own timeouts.
type service struct {
	stop    chan struct{}
	running sync.WaitGroup

	mu sync.Mutex
	// to is kept open: without a watchdog's notification systemd ends a target that works, and when descriptors are used up
	// there may be none for another socket. It is nil until something is said.
	to *net.UnixConn
}

const (
	// sayTime is how long systemd may take to receive what it is told. When it has stopped reading and its
	// socket is full, the target must work and stop all the same.
	sayTime = time.Second
	// readyTime is the same for the message without which systemd ends the program.
	readyTime = 10 * time.Second
)

// say tells systemd something that it can do without.
func (s *service) say(state string) { s.notify(state, sayTime) }

// notify sends lines as sd_notify(3) does, within a time.
func (s *service) notify(state string, within time.Duration) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 2 { // systemd may have made its socket anew since
		if s.to == nil {
			c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				return
			}
			s.to = c
		}
		_ = s.to.SetWriteDeadline(time.Now().Add(within))
		_, err := s.to.Write([]byte(state))
		if !ended(err) {
			return // it can't be told now, and the next time by the same socket
		}
		s.hangUp()
	}
}

// ended reports whether an error of writing to a socket says that its other end is gone.
func ended(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.ENOENT)
}

// hangUp closes the socket. Called with mu held.
func (s *service) hangUp() {
	if s.to != nil {
		_ = s.to.Close()
		s.to = nil
	}
}

// ready reports that the target serves, and from then on that it is alive, as often as systemd's watchdog requires.
// alive returns if the program can still do its work, and blocks if not.
func (s *service) ready(status string, alive func()) {
	s.notify(daemon.SdNotifyReady+"\nSTATUS="+status, readyTime)
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every <= 0 {
		return
	}
	s.stop = make(chan struct{})
	s.running.Go(func() {
		tick := time.NewTicker(every / 2)
		defer tick.Stop()
		for {
			alive()
			s.say(daemon.SdNotifyWatchdog)
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
		}
	})
}

// stopping reports that the program is ending, and within what time.
func (s *service) stopping(within time.Duration) {
	s.say(fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, within.Microseconds()))
}

// close ends the watchdog's goroutine, and closes the socket.
func (s *service) close() error {
	if s.stop != nil {
		close(s.stop)
		s.running.Wait()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangUp()
	return nil
}
