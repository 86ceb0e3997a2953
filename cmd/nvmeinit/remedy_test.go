package main

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestRemedied: a user who asks for a log that the controller doesn't have is told how to find the existing ones;
// the status is still available, and other errors are unchanged.
func TestRemedied(t *testing.T) {
	err := remedied(&nvme.StatusError{Status: nvme.StatusInvalidLogPage | nvme.StatusDNR, Command: "Get Log Page"})
	if !errors.Is(err, nvme.StatusInvalidLogPage) || !strings.Contains(err.Error(), "supported-log-pages shows which") {
		t.Errorf("%v", err)
	}
	if err := remedied(errors.New("other")); err.Error() != "other" || remedied(nil) != nil {
		t.Errorf("another error is changed to %v", err)
	}
}

// TestNoLocalAddress: -w is blamed only if it was given: the system also finds no local address if a family is
// disabled, as IPv6 may be, or every port is in use (connect(2)).
func TestNoLocalAddress(t *testing.T) {
	lost := &host.ConnectError{Stage: "connection", Err: unix.EADDRNOTAVAIL}
	for given, want := range map[string]string{
		"": "this host has no address to reach it from, or no port left", "192.0.2.9": "-w 192.0.2.9 is not an address of this host",
	} {
		f := connFlags{hostTraddr: given}
		if said := f.explain(lost).Error(); !strings.Contains(said, want) || strings.Contains(said, "-w") != (given != "") {
			t.Errorf("with -w %q: %s", given, said)
		}
	}
}

// TestNoResources: who is refused for lack of resources learns that this passes, and what ends it.
func TestNoResources(t *testing.T) {
	refused := &rdma.RejectError{Reason: verbs.RejectConsumer, Status: rdma.RejectNoResources}
	said := new(connFlags).explain(&host.ConnectError{Stage: "connection", Err: refused}).Error()
	if want := "out of resources: it stops, is drained or has too many connections; try again, or end others"; !strings.HasSuffix(said, want) {
		t.Errorf("%q, want …%q", said, want)
	}
}

// TestStaticControllers: a subsystem with static controllers refuses CNTLID FFFFh, which a user who has never heard of
// CNTLIDs is told.
func TestStaticControllers(t *testing.T) {
	refused := &nvme.StatusError{Status: nvme.StatusConnectInvalidParameter | nvme.StatusDNR,
		Result: uint64(nvme.InvalidData(nvme.ConnectDataOffCNTLID))}
	for qid, want := range map[uint16]bool{0: true, 1: false} { // on an I/O queue it is that of a controller that is gone
		f := connFlags{}
		said := f.explain(&host.ConnectError{Stage: "Connect", QID: qid, Err: refused}).Error()
		if strings.Contains(said, "static controllers") != want {
			t.Errorf("on queue %d: %s", qid, said)
		}
	}
}

// TestConnectAllHelp: the help of connect-all doesn't show flags that it rejects.
func TestConnectAllHelp(t *testing.T) {
	var help strings.Builder
	root := newRoot()
	root.SetOut(&help)
	root.SetArgs([]string{"connect-all", "--help"})
	if code := cli.Execute(t.Context(), root, &help); code != cli.ExitOK {
		t.Fatal(help.String())
	}
	for flag, shown := range map[string]bool{"--path": false, "--all-paths": false, "--iopolicy": true, "--ctrl-loss-tmo": true} {
		if strings.Contains(help.String(), flag+" ") != shown {
			t.Errorf("%s:\n%s", flag, help.String())
		}
	}
	if strings.Contains(help.String(), "any of these makes lost connections come back") {
		t.Error("only --hold does here")
	}
}
