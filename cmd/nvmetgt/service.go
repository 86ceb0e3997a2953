package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// service is systemd, where it started the program with Type=notify; elsewhere nothing happens.
// What can't be said to it is lost: it has its own timeouts.
type service struct {
	stop    chan struct{}
	running sync.WaitGroup
}

// say sends lines of sd_notify(3).
func (s *service) say(state string) { _, _ = daemon.SdNotify(false, state) }

// ready says that the target serves, and from then on that it is alive, as often as systemd's
// watchdog wants. alive returns when the program can still do its work, and blocks when not.
func (s *service) ready(status string, alive func()) {
	s.say(daemon.SdNotifyReady + "\nSTATUS=" + status)
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

// stopping says that the program ends, and within which time.
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
