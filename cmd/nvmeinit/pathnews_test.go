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
