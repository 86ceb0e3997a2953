package main

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestFollowRefused: users that hold connections are told once about a discovery controller that gives no notices,
// since changes there aren't followed, even if it refuses only the command that it would answer with them; about
// one that gives notices nothing is said, and they arrive.
func TestFollowRefused(t *testing.T) {
	tgt, l := serveSubsystems(t, "nqn.2026-11.org.example:disk")
	tr, err := tcp.NewTransport(tcp.HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	ports := uint16(4420)
	for name, tc := range map[string]struct {
		answer func(r *host.Request, cqe *nvme.Completion)
		lines  int
	}{
		"it has them": {func(r *host.Request, _ *nvme.Completion) {
			if r.Cmd.Name(0) == nvme.FCConnect.String() && r.Cmd.ConnectKATO() == 0 {
				t.Error("it asks for no persistent connection, which takes a keep alive timeout")
			}
		}, 0},
		"it has none": {func(r *host.Request, _ *nvme.Completion) {
			var p nvme.IdentifyController
			if r.Cmd.Opcode() == nvme.OpIdentify && r.Cmd.CNS() == nvme.CNSController && p.Parse(r.Data) == nil {
				p.OAES &^= nvme.AENDiscovery
				copy(r.Data, p.AppendTo(nil))
			}
		}, 1},
		"it refuses to be asked": {func(r *host.Request, cqe *nvme.Completion) {
			if r.Cmd.Opcode() == nvme.OpSetFeatures && r.Cmd.FID() == nvme.FeatAsyncEvent {
				cqe.SetStatus(nvme.StatusInvalidField | nvme.StatusDNR)
			}
		}, 1},
		"it refuses the request for them": {func(r *host.Request, cqe *nvme.Completion) {
			if r.Cmd.Opcode() == nvme.OpAsyncEvent {
				cqe.SetStatus(nvme.StatusInvalidOpcode | nvme.StatusDNR)
			}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			changed, told := make(chan struct{}, 1), make(chan struct{}, 1)
			var lines []string
			tell := func(line string) {
				lines = append(lines, line)
				told <- struct{}{}
			}
			f := &follower{changed: changed, tell: tell,
				cfg: host.Config{Transport: &altering{tr, tc.answer}, Remote: l.Addr(), SubNQN: nvme.DiscoveryNQN}}
			for i := range 2 { // the connection is lost once
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { defer close(ended); f.run(ctx) }()
				<-changed
				ports++
				at := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), ports)
				if err := tgt.AddPort(tcp.DiscoveryPort(at)); err != nil {
					t.Fatal(err)
				}
				switch {
				case tc.lines == 0:
					<-changed
				case i == 0:
					<-told
				}
				cancel()
				<-ended
			}
			if len(lines) != tc.lines || tc.lines > 0 && !strings.Contains(lines[0], "discovery: tcp://"+l.Addr().String()+" gives no notices") {
				t.Errorf("it says %q", lines)
			}
		})
	}
}

// TestFollowWithoutPersistence: users are told once if a discovery controller refuses a persistent connection, by which
// it would give notices.
func TestFollowWithoutPersistence(t *testing.T) {
	_, l := serveSubsystems(t, "nqn.2026-11.org.example:disk")
	tr, err := tcp.NewTransport(tcp.HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	refusing := &altering{tr, func(r *host.Request, cqe *nvme.Completion) {
		if r.Cmd.Name(0) == nvme.FCConnect.String() && r.Cmd.ConnectKATO() != 0 {
			cqe.SetStatus(nvme.StatusConnectInvalidParameter | nvme.StatusDNR)
		}
	}}
	var lines []string
	f := &follower{changed: make(chan struct{}, 1), tell: func(line string) { lines = append(lines, line) },
		cfg: host.Config{Transport: refusing, Remote: l.Addr(), SubNQN: nvme.DiscoveryNQN, KATO: followKATO}}
	for range 2 {
		f.connected(t.Context())
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "gives no notices") {
		t.Errorf("it says %q", lines)
	}
}
