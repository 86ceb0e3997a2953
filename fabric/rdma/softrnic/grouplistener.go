package softrnic

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// groupListener is an identifier that listens on all RNICs of a group.
type groupListener struct {
	verbs.CMID // of the first
	all        []verbs.CMID
	of         verbs.CMID // what the consumer knows

	calls sync.Mutex // held during calls of the handler, which are one at a time

	mu        sync.Mutex
	handler   verbs.CMHandler
	destroyed bool
}

func (g *Group) listen(of *routedID, local netip.AddrPort, backlog int) error {
	l := &groupListener{of: of, handler: of.handler}
	l.calls.Lock() // until all is complete
	defer l.calls.Unlock()
	for _, nic := range g.rnics {
		id, err := nic.CreateID(l.event)
		if err != nil {
			return errors.Join(err, l.Destroy())
		}
		l.all = append(l.all, id)
		if err := id.Listen(local, backlog); err != nil {
			return errors.Join(err, l.Destroy())
		}
		local = id.LocalAddr() // if a free port was wanted, all have the first's
	}
	l.CMID = l.all[0]
	of.CMID = l
	return nil
}

// event handles an event of an RNIC's listener, or of a connection request that has no handler of its own yet.
func (l *groupListener) event(ev verbs.CMEvent) {
	l.calls.Lock()
	defer l.calls.Unlock()
	l.mu.Lock()
	handler, destroyed := l.handler, l.destroyed
	l.mu.Unlock()
	if destroyed && ev.Type == verbs.CMConnectRequest {
		_ = ev.ID.Destroy() // rejects it
	}
	if destroyed || handler == nil {
		return
	}
	if slices.Contains(l.all, ev.ID) {
		ev.ID = l.of
	}
	if ev.Listen != nil {
		ev.Listen = l.of
	}
	handler(ev)
}

// Device returns nil: there are several.
func (l *groupListener) Device() verbs.Device { return nil }

// SetHandler makes h handle the events from the next one on.
func (l *groupListener) SetHandler(h verbs.CMHandler) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handler = h
}

// Destroy frees the identifiers.
func (l *groupListener) Destroy() error {
	l.mu.Lock()
	l.destroyed = true
	l.mu.Unlock()
	var errs []error
	for _, id := range l.all {
		errs = append(errs, id.Destroy())
	}
	return errors.Join(errs...)
}
