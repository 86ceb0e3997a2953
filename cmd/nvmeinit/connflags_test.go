package main

import (
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestConnectionBounds: the least and the most that each flag of a connection takes, and what is just outside.
func TestConnectionBounds(t *testing.T) {
	const week = "604800" // seconds
	for _, c := range []struct {
		flag      string
		good, bad []string
	}{
		{"timeout", []string{"1ns"}, []string{"0s", "-1s"}},
		{"nr-io-queues", []string{"0", "1", "65534"}, []string{"-1", "65535"}},
		{"queue-size", []string{"0", "2", "65536"}, []string{"-1", "1", "65537"}},
		{"keep-alive-tmo", []string{"0", "1", "86400"}, []string{"-1", "86401"}},
		{"reconnect-delay", []string{"1", week}, []string{"0", "604801"}},
		{"ctrl-loss-tmo", []string{"-1", "0", week}, []string{"-2", "604801"}},
		{"fast_io_fail_tmo", []string{"-1", "0", week}, []string{"-2", "604801"}},
	} {
		valid := func(value string) bool {
			cmd, f := &cobra.Command{}, &connFlags{}
			f.paths.add(cmd, "any of these")
			f.add(cmd, true)
			if err := cmd.ParseFlags([]string{"--" + c.flag + "=" + value}); err != nil {
				t.Fatal(err)
			}
			return f.validate() == nil && f.paths.validate() == nil
		}
		for _, value := range c.good {
			if !valid(value) {
				t.Errorf("--%s %s is refused", c.flag, value)
			}
		}
		for _, value := range c.bad {
			if valid(value) {
				t.Errorf("--%s %s is taken", c.flag, value)
			}
		}
	}
}

// TestNoKeepAlive: -k 0 asks for no keep alive, as with nvme-cli, and not for the default.
func TestNoKeepAlive(t *testing.T) {
	for value, want := range map[string]time.Duration{"0": -1, "7": 7 * time.Second} {
		cmd, f := &cobra.Command{}, &connFlags{}
		f.add(cmd, true)
		if err := cmd.ParseFlags([]string{"-k", value, "-q", nvme.NewHostID().NQN()}); err != nil {
			t.Fatal(err)
		}
		cfg, err := f.config(t.Context(), &fabric{})
		if err != nil || cfg.KATO != want {
			t.Errorf("-k %s: KATO is %v, want %v; %v", value, cfg.KATO, want, err)
		}
	}
}
