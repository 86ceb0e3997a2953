package main

import (
	"net/netip"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/fault"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestFabricsShared: paths of one transport share it, whatever their addresses, and a path by TCP is not refused because
// of faults, which are for those by RDMA.
func TestFabricsShared(t *testing.T) {
	cmd, f := &cobra.Command{}, &connFlags{}
	f.add(cmd, true)
	if err := cmd.ParseFlags([]string{"--hdr-digest"}); err != nil {
		t.Fatal(err)
	}
	f.packets.Fault.Config = &fault.Config{}
	s := &fabrics{flags: f}
	for _, at := range []string{"192.0.2.1:4420", "192.0.2.2:4421"} {
		addr := netip.MustParseAddrPort(at)
		flags, fab, err := s.to(cli.Endpoint{Transport: nvme.TransportTCP, Addr: addr})
		if err != nil {
			t.Fatal(err)
		}
		if fab.remote != addr || fab.tcp != s.open[0].tcp || !flags.hdrDigest {
			t.Errorf("to %s it leads to %s, shares the transport: %v, with header digests: %v", at, fab.remote, fab.tcp == s.open[0].tcp, flags.hdrDigest)
		}
	}
	if len(s.open) != 1 {
		t.Errorf("%d transports", len(s.open))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
