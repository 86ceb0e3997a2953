package main

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

// TestPathNews: about a path in a crash loop the user is told at a bounded rate, with the number of changes left
// out, and finally its state; another path isn't affected.
func TestPathNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		n := newPathNews(func(line string) { lines = append(lines, line) })
		loop := multipath.PathStatus{Transport: nvme.TransportRDMA, Remote: netip.MustParseAddrPort("192.0.2.1:4420")}
		other := multipath.PathStatus{Transport: nvme.TransportTCP, Remote: loop.Remote, State: multipath.Live}
		const seconds = 10
		for range seconds * 10 {
			loop.State, loop.Err = multipath.Live, nil
			n.tell(&loop)
			loop.State, loop.Err = multipath.Reconnecting, errors.New("it crashed")
			n.tell(&loop)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(newsGap / 2) // not when a line is due
		synctest.Wait()
		n.tell(&other)
		if last := lines[len(lines)-1]; last != "path tcp://192.0.2.1:4420: live" {
			t.Errorf("the other path: %q", last)
		}
		if told := len(lines) - 1; told < seconds || told > seconds+newsBurst {
			t.Errorf("%d lines in %d s", told, seconds)
		}
		loop.State = multipath.Reconnecting
		n.tell(&loop)
		loop.State, loop.Err = multipath.Live, nil
		n.tell(&loop)
		time.Sleep(newsGap)
		synctest.Wait()
		if last := lines[len(lines)-1]; last != "path rdma://192.0.2.1:4420: live (changes left out before it: 1)" {
			t.Errorf("the last of the loop: %q", last)
		}
		before := len(lines)
		loop.State = multipath.GivenUp
		for range 3 {
			n.tell(&loop)
		}
		n.close()
		if got := lines[before:]; !slices.Equal(got, []string{"path rdma://192.0.2.1:4420: given up (changes left out before it: 2)"}) {
			t.Errorf("at the end: %q", got)
		}
		time.Sleep(2 * newsGap)
		synctest.Wait()
		if len(lines) != before+1 {
			t.Errorf("after the end: %q", lines[before:])
		}
	})
}

// TestPathText: a line about a path says how it leads to each namespace while it is live, and else why it isn't.
func TestPathText(t *testing.T) {
	down := errors.New("nvme: cable out")
	optimized, inaccessible := multipath.Access{NSID: 1, State: nvme.ANAOptimized}, multipath.Access{NSID: 2, State: nvme.ANAInaccessible}
	for want, p := range map[string]multipath.PathStatus{
		"live":                      {State: multipath.Live},
		"live, optimized":           {State: multipath.Live, Access: []multipath.Access{optimized}},
		"live, not in the ANA log":  {State: multipath.Live, Access: []multipath.Access{{NSID: 1}}},
		"live, not used: cable out": {State: multipath.Live, Access: []multipath.Access{{NSID: 1, Err: down}}},
		"live, namespace 1 optimized, namespace 2 inaccessible": {State: multipath.Live, Access: []multipath.Access{optimized, inaccessible}},
		"reconnecting: cable out":                               {State: multipath.Reconnecting, Err: down},
		"connecting":                                            {State: multipath.Connecting},
	} {
		p.Transport, p.Remote = nvme.TransportTCP, netip.MustParseAddrPort("192.0.2.1:4420")
		if got := pathText(&p); got != "path tcp://192.0.2.1:4420: "+want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestPathsText: the line of a run counts the live paths, and names those that are not used as they might be.
func TestPathsText(t *testing.T) {
	access := func(s nvme.ANAState, err error) []multipath.Access {
		return []multipath.Access{{NSID: 1, State: s, Err: err}}
	}
	for _, x := range []struct {
		second  multipath.PathStatus
		waiting int
		want    string
	}{
		{multipath.PathStatus{State: multipath.Live}, 0, "paths 2/2"},
		{multipath.PathStatus{State: multipath.Live, Access: access(nvme.ANAOptimized, nil)}, 0, "paths 2/2"},
		{multipath.PathStatus{State: multipath.Live, Access: access(nvme.ANANonOptimized, nil)}, 0, "paths 2/2 (tcp://192.0.2.2:4420 non-optimized)"},
		{multipath.PathStatus{State: multipath.Live, Access: access(nvme.ANAOptimized, errors.New("nvme: another disk"))}, 0,
			"paths 2/2 (tcp://192.0.2.2:4420 not used: another disk)"},
		{multipath.PathStatus{State: multipath.Reconnecting, Err: errors.New("cable out")}, 0, "paths 1/2 (tcp://192.0.2.2:4420 reconnecting)"},
		{multipath.PathStatus{State: multipath.GivenUp}, 3, "paths 1/2 (tcp://192.0.2.2:4420 given up), 3 waiting"},
	} {
		x.second.Transport, x.second.Remote = nvme.TransportTCP, netip.MustParseAddrPort("192.0.2.2:4420")
		first := multipath.PathStatus{
			Transport: nvme.TransportRDMA, Remote: netip.MustParseAddrPort("192.0.2.1:4420"), State: multipath.Live, Access: access(nvme.ANAOptimized, nil),
		}
		if got := pathsText([]multipath.PathStatus{first, x.second}, x.waiting); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}
