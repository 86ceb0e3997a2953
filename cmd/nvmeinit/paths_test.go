package main

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/fault"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestFabricsCapture: the transports of several paths are captured in one file, which goes on if one of them can't be
// opened, and ends with the last.
func TestFabricsCapture(t *testing.T) {
	cmd, f := &cobra.Command{}, &connFlags{}
	f.add(cmd, true)
	f.pcap = filepath.Join(t.TempDir(), "paths.pcapng")
	s := &fabrics{flags: f}
	end := cli.Endpoint{Transport: nvme.TransportTCP, Addr: netip.MustParseAddrPort("192.0.2.1:4420")}
	_, first, err := s.to(end)
	if err != nil {
		t.Fatal(err)
	}
	f.hostTraddr, end.Transport = "192.0.2.9", nvme.TransportRDMA
	if _, _, err := s.to(end); err == nil || !strings.HasPrefix(err.Error(), "-w 192.0.2.9: ") {
		t.Errorf("with an address that this host doesn't have: %v", err)
	}
	ended := func() bool {
		select {
		case <-first.capture.Done():
			return true
		default:
			return false
		}
	}
	if ended() {
		t.Error("the capture has ended with the transport that can't be opened")
	}
	if err := s.Close(); err != nil || !ended() {
		t.Errorf("at the end the capture has ended: %v, %v", ended(), err)
	}
}

// TestFabricsShared: paths of one transport share it, whatever their addresses, and a path by TCP is not refused
// because of faults, which are for those by RDMA.
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

// TestAllPathsUnreached: --all-paths uses the paths that it can, and says which it can't, and which discovery
// controllers don't answer, but nothing of paths to other subsystems.
func TestAllPathsUnreached(t *testing.T) {
	const nqn = "nqn.2026-11.org.example:"
	tgt, l := serveSubsystems(t, nqn+"s", nqn+"other")
	plain, secure := netip.MustParseAddrPort("127.0.0.1:4421"), netip.MustParseAddrPort("127.0.0.1:4422")
	for _, p := range []target.Port{
		{Transport: nvme.TransportTCP, Addr: plain}, {Transport: nvme.TransportTCP, Addr: secure, Secure: true},
	} {
		if err := tgt.AddPort(p); err != nil {
			t.Fatal(err)
		}
	}
	_, closed := serveSubsystems(t)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tgt.AddReferral(target.Referral{Transport: nvme.TransportTCP, Addr: closed.Addr()}); err != nil {
		t.Fatal(err)
	}
	e := everythingAt(t, l)
	var told bytes.Buffer
	f := e.flags
	f.nqn, f.paths.all, f.stderr = nqn+"s", true, func() io.Writer { return &told }
	all, err := f.pathConfigs(t.Context(), e.fabrics, []cli.Endpoint{{Transport: nvme.TransportTCP, Addr: l.Addr()}})
	if err != nil || len(all) != 2 || all[0].Remote != l.Addr() || all[1].Remote != plain {
		t.Errorf("%v; paths %+v, want those to %s and %s", err, all, l.Addr(), plain)
	}
	lines := strings.Split(strings.TrimSuffix(told.String(), "\n"), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], fmt.Sprintf("--all-paths: nvme: discovery entry tcp://%s: it demands TLS", secure)) ||
		!strings.HasPrefix(lines[1], fmt.Sprintf("--all-paths: connect to tcp://%s: connection refused", closed.Addr())) {
		t.Errorf("the user is told %q", lines)
	}
}
