package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

const (
	// followKATO is the keep alive timeout of persistent discovery controllers, nvme-cli's.
	followKATO = 30 * time.Second
	followGap  = 10 * time.Second // between attempts to connect
)

// follower stays connected to a discovery controller, and wakes whoever waits on changed when its log
// may be another.
type follower struct {
	cfg     host.Config
	changed chan<- struct{}
	tell    func(line string)
	told    bool // that there are no notices
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

// connected lasts as long as one connection.
func (f *follower) connected(ctx context.Context) {
	c, err := host.Connect(ctx, f.cfg)
	if err != nil {
		return
	}
	if c.Notices()&nvme.AENDiscovery == 0 {
		f.noNotices()
	}
	f.wake() // for what nobody notified of meanwhile
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
	_ = c.Close() // the way out, or lost
}

// noNotices tells, once, that changes aren't followed.
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
