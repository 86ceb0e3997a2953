package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// notices holds what a controller has reported, for people.
type notices chan string

// mostNotices is how many notices may wait to be shown; further ones are dropped.
const mostNotices = 64

// subscribe makes the controller of a configuration report to n.
func (n notices) subscribe(c *host.Config) {
	c.NamespacesChanged = func(_ *host.Controller, changed []uint32) { n.tell(changedText(changed)) }
	c.ReservationNotified = func(_ *host.Controller, r nvme.ReservationNotification) { n.tell(r.String()) }
	c.Event = func(_ *host.Controller, e nvme.AsyncEvent) {
		if e != nvme.EventNamespaceChanged && e != nvme.EventReservation {
			n.tell(e.String())
		}
	}
}

func (n notices) tell(what string) {
	select {
	case n <- what:
	default:
	}
}

// changedText lists the namespaces that appeared, disappeared or changed.
func changedText(changed []uint32) string {
	if len(changed) == 0 {
		return "namespaces changed"
	}
	ids := strings.Trim(fmt.Sprint(slices.Sorted(slices.Values(changed))), "[]")
	return "namespaces changed: " + strings.ReplaceAll(ids, " ", ", ")
}
