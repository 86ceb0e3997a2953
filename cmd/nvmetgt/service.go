package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// service notifies systemd if that started the program with Type=notify; otherwise it does nothing. Failures to
// notify are ignored: systemd has its own timeouts.
type service struct {
	stop    chan struct{}
	running sync.WaitGroup
}

// say sends lines as sd_notify(3) does.
func (s *service) say(state string) { _, _ = daemon.SdNotify(false, state) }

// ready reports that the target serves, and from then on that it is alive, as often as systemd's watchdog requires.
// alive returns if the program can still do its work, and blocks if not.
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
