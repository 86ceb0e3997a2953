package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

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

// told shows notices: newsBurst at once, and in the long run one a second, lest a flood of them fill a terminal or a log.
type told struct {
	w      io.Writer
	live   bool   // a live line is to stay above
	credit int    // notices that may be shown at once
	last   string // what isn't shown yet; "" where nothing is
	left   int    // notices before it that weren't shown
}

// notice shows a notice, or has it wait.
func (t *told) notice(what string) {
	if t.credit > 0 {
		t.credit--
		t.show(what)
		return
	}
	if t.last != "" {
		t.left++
	}
	t.last = what
}

// second is called each second, and at the end, and shows what waits.
func (t *told) second() {
	switch {
	case t.last == "":
		t.credit = min(t.credit+1, newsBurst)
		return
	case t.left > 0:
		t.last += fmt.Sprintf(" (notices left out before it: %d)", t.left)
	}
	t.show(t.last)
	t.last, t.left = "", 0
}

func (t *told) show(what string) {
	if t.live {
		fmt.Fprintln(t.w)
	}
	fmt.Fprintf(t.w, "%s %s\n", time.Now().Format(time.TimeOnly), what)
}
