package main

import (
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// service notifies systemd, or another supervisor that speaks its protocol, if that started the program with
// Type=notify; otherwise it does nothing. Failures to notify are ignored: systemd has its own timeouts.
type service struct {
	stop    chan struct{}
	running sync.WaitGroup
}

const (
	// sayTime is how long systemd may take to receive what it is told. When it has stopped reading and its
	// socket is full, the target must work and stop all the same.
	sayTime = time.Second
	// readyTime is the same for the message without which systemd ends the program.
	readyTime = 10 * time.Second
)

// say tells systemd something that it can do without.
func (s *service) say(state string) { notify(state, sayTime) }

// notify sends lines as sd_notify(3) does, within a time.
func notify(state string, within time.Duration) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(within))
	_, _ = c.Write([]byte(state))
	_ = c.Close()
}

// ready reports that the target serves, and from then on that it is alive, as often as systemd's watchdog requires.
// alive returns if the program can still do its work, and blocks if not.
func (s *service) ready(status string, alive func()) {
	notify(daemon.SdNotifyReady+"\nSTATUS="+status, readyTime)
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

// close ends the watchdog's goroutine.
func (s *service) close() error {
	if s.stop != nil {
		close(s.stop)
		s.running.Wait()
	}
	return nil
}
