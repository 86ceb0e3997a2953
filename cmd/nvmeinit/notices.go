package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// notices are what a controller has told, for people.
type notices chan string

// mostNotices wait to be shown at most; more are dropped.
const mostNotices = 64

// subscribe has the controller of a configuration tell.
func (n notices) subscribe(c *host.Config) {
	c.NamespacesChanged = func(_ *host.Controller, changed []uint32) { n.tell(changedText(changed)) }
	c.Event = func(_ *host.Controller, e nvme.AsyncEvent) {
		if e != nvme.EventNamespaceChanged {
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

// changedText names the namespaces that came, went, or are others now.
func changedText(changed []uint32) string {
	if len(changed) == 0 {
		return "namespaces changed"
	}
	ids := strings.Trim(fmt.Sprint(slices.Sorted(slices.Values(changed))), "[]")
	return "namespaces changed: " + strings.ReplaceAll(ids, " ", ", ")
}
