package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestNotices: each event is told once, namespaces by their numbers, and who doesn't listen holds nobody up.
func TestNotices(t *testing.T) {
	n := make(notices, 3)
	var c host.Config
	n.subscribe(&c)
	c.NamespacesChanged(nil, []uint32{7, 2})
	c.Event(nil, nvme.EventNamespaceChanged)
	c.NamespacesChanged(nil, nil)
	c.Event(nil, nvme.EventReservation)
	c.Event(nil, nvme.EventANAChanged)
	for _, want := range []string{"namespaces changed: 2, 7", "namespaces changed", "reservation notification available"} {
		if got := <-n; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if len(n) != 0 {
		t.Errorf("%q too", <-n)
	}
}

// TestToldFlood: of a flood of notices the first are shown at once, and then one a second, the last of them; after a while
// without any all are shown again.
func TestToldFlood(t *testing.T) {
	var out strings.Builder
	shown := told{w: &out, credit: newsBurst}
	lines := func() int {
		return strings.Count(out.String(), "\n")
	}
	for i := range 1000 {
		shown.notice(fmt.Sprint("event ", i))
	}
	if lines() != newsBurst {
		t.Errorf("%d lines at once", lines())
	}
	shown.second()
	if want := fmt.Sprintf("event 999 (notices left out before it: %d)\n", 1000-newsBurst-1); !strings.HasSuffix(out.String(), want) || lines() != newsBurst+1 {
		t.Errorf("after a second %d lines, the last of %q", lines(), out.String())
	}
	shown.notice("waits")
	shown.second()
	if !strings.HasSuffix(out.String(), " waits\n") {
		t.Error(out.String())
	}
	out.Reset()
	for range 3 {
		shown.second()
	}
	for range 4 {
		shown.notice("again")
	}
	if lines() != 3 {
		t.Errorf("%d lines after three seconds of silence", lines())
	}
}
