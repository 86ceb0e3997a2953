package main

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestNotices: each event is reported once, with namespaces by number, and a receiver that doesn't listen blocks
// nobody.
func TestNotices(t *testing.T) {
	n := make(notices, 4)
	var c host.Config
	n.subscribe(&c)
	c.NamespacesChanged(nil, []uint32{7, 2})
	c.Event(nil, nvme.EventNamespaceChanged)
	c.NamespacesChanged(nil, nil)
	c.ReservationNotified(nil, nvme.ReservationNotification{Type: nvme.ResvNoticeReleased, NSID: 2})
	c.Event(nil, nvme.EventReservation)
	c.Event(nil, nvme.EventANAChanged)
	c.Event(nil, nvme.EventSanitized) // for which there is no room
	for _, want := range []string{"namespaces changed: 2, 7", "namespaces changed", "reservation released, namespace 2", nvme.EventANAChanged.String()} {
		if got := <-n; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if len(n) != 0 {
		t.Errorf("%q too", <-n)
	}
}
