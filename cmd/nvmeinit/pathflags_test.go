package main

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestPathTimes: the times mean what they mean to nvme-cli: 0 is at once, and -1 is for ever, or for as long as
// --ctrl-loss-tmo.
func TestPathTimes(t *testing.T) {
	for _, c := range []struct {
		args       []string
		loss, fast time.Duration // as multipath.Config takes them
	}{
		{nil, 600 * time.Second, 0},
		{[]string{"-l", "-1", "-F", "-1"}, -time.Second, 0},
		{[]string{"--ctrl-loss-tmo", "0", "--fast_io_fail_tmo", "0"}, time.Nanosecond, time.Nanosecond},
		{[]string{"-l", "5", "-F", "2"}, 5 * time.Second, 2 * time.Second},
	} {
		cmd, p := &cobra.Command{}, pathFlags{}
		p.add(cmd, "any of these")
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		if got := p.wanted(); got != (c.args != nil) {
			t.Errorf("%v: wants several paths or reconnection: %v", c.args, got)
		}
		if err := p.validate(); err != nil {
			t.Errorf("%v: %v", c.args, err)
		}
		cfg := p.config()
		if cfg.ControllerLoss != c.loss || cfg.FastIOFail != c.fast {
			t.Errorf("%v: ControllerLoss %v, FastIOFail %v; want %v, %v", c.args, cfg.ControllerLoss, cfg.FastIOFail, c.loss, c.fast)
		}
	}
}
