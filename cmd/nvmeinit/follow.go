package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

const (
	// followKATO is the keep alive timeout of persistent discovery controllers, and the same as nvme-cli's.
	followKATO = 30 * time.Second
	followGap  = 10 * time.Second // between attempts to connect
)

// follower stays connected to a discovery controller, and wakes the receiver of changed when its log may have
// changed.
type follower struct {
	cfg     host.Config
	changed chan<- struct{}
	tell    func(line string)
	told    bool // the user knows that there are no notices
}

func (f *follower) run(ctx context.Context) {
	f.cfg.KATO = followKATO
	f.cfg.Event = func(_ *host.Controller, e nvme.AsyncEvent) {
		if e == nvme.EventDiscoveryChanged {
			f.wake()
		}
	}
	for {
		f.connected(ctx)
		select {
		case <-time.After(followGap):
		case <-ctx.Done():
			return
		}
	}
}

// connected handles one connection until it ends.
func (f *follower) connected(ctx context.Context) {
	c, err := host.Connect(ctx, f.cfg)
	if err != nil {
		// A controller without persistent connections refuses the keep alive timeout.
		if errors.Is(err, nvme.StatusConnectInvalidParameter) || errors.Is(err, nvme.StatusInvalidField) {
			f.noNotices()
		}
		return
	}
	if c.Notices()&nvme.AENDiscovery == 0 {
		f.noNotices()
	}
	f.wake() // for changes that weren't notified in the meantime
	select {
	case <-c.NoticesEnded():
		f.noNotices()
	case <-c.Done():
	case <-ctx.Done():
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
	}
	_ = c.Close() // we are leaving, or it is lost
}

// noNotices tells the user, once, that changes aren't followed.
func (f *follower) noNotices() {
	if f.told {
		return
	}
	f.told = true
	at := cli.Endpoint{Transport: f.cfg.Transport.Type(), Addr: f.cfg.Remote}
	f.tell(fmt.Sprintf("discovery: %s gives no notices of changes: what is added there from now on isn't connected to", at))
}

func (f *follower) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}
