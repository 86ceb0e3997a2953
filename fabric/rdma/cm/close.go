package cm

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Close ends everything: each identifier gets CMDeviceRemoval, in whose handler it can still be disconnected and
// destroyed; then those that are left are destroyed, which tells their peers (DREQ or REJ). It waits for DREPs, but not
// long. When it returns, no handler runs and none will. It must not be called from a handler. The device stays open.
func (m *Manager) Close() error {
	m.mu.Lock()
	first := !m.closed
	m.closed = true
	m.mu.Unlock()
	if first {
		close(m.stop)
	}
	<-m.stopped
	return nil
}

// shutdown ends the manager, at the end of the goroutine.
func (m *Manager) shutdown() {
	m.deliver()
	for _, id := range m.allIDs() {
		m.mu.Lock()
		handler := id.handler
		gone := id.destroyed
		m.mu.Unlock()
		if !gone && handler != nil {
			handler(verbs.CMEvent{Type: verbs.CMDeviceRemoval, ID: id})
		}
	}
	for _, id := range m.allIDs() {
		_ = id.Destroy() // the only possible error is a QP that is already gone
	}
	m.linger()
	m.dev.HandleMADs(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = true
	m.table, m.events = newTable(), nil
	m.counters.Connections.Store(0)
	m.counters.HalfOpen.Store(0)
}

// lingerTime is how long Close waits for DREPs: longer than a peer on a busy machine takes to answer, and short for a
// user whose peer is gone.
const lingerTime = time.Second

// linger handles messages until every peer that was sent a DREQ has answered, so that both sides end in order and the
// port isn't closed before the last answer. Meanwhile DREQs are repeated, and the REJs that take their place before an
// RTU has come: a peer that got none would wait for this host until its keep-alive timeout is over.
func (m *Manager) linger() {
	end := time.NewTimer(lingerTime)
	defer end.Stop()
	again := time.NewTimer(lingerTime)
	defer again.Stop()
	for m.repeats() {
		m.setTimer(again)
		select {
		case <-m.inbox.wake:
		case <-again.C:
		case <-end.C:
			return
		}
		m.work()
	}
}

// repeats reports whether a connection that has ended still repeats its DREQ or REJ.
func (m *Manager) repeats() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.table.byLocal {
		if r.pending != nil {
			return true
		}
	}
	return false
}
