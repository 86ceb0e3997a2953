package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/examples/internal/rctest"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// role returns the program with arguments.
func role(t *testing.T, args ...string) rctest.Role {
	t.Helper()
	return rctest.RoleOf(t, parse, run, args...)
}

func TestPingPong(t *testing.T) {
	for _, args := range [][]string{nil, {"-size", "2", "-count", "7"}, {"-size", "100001", "-mtu", "4096", "-count", "20"}} {
		addr := rctest.Addr(t)
		server, client, e1, e2 := rctest.Run(t.Context(), role(t, append(args, "-bind", addr)...), role(t, append(args, addr)...))
		if e1 != nil || e2 != nil {
			t.Fatalf("%v: server %v, client %v", args, e1, e2)
		}
		for _, out := range []string{server, client} {
			if !strings.Contains(out, "all verified, 0 of them ours") {
				t.Errorf("%v: %s", args, out)
			}
		}
	}
}

// The golden lines are from ibv_rc_pingpong (rdma-core 44.0), over rdma_rxe.
var golden = map[string]rc.Peer{
	"0000:000011:09f8da:00000000000000000000ffffc6120003\x00": {
		QPN: 0x11, PSN: 0x09f8da, GID: verbs.GIDFrom(netip.MustParseAddr("198.18.0.3")),
	},
	"0000:000012:fbcfd4:fd000018000000000000000000000003\x00": {
		QPN: 0x12, PSN: 0xfbcfd4, GID: verbs.GIDFrom(netip.MustParseAddr("fd00:18::3")),
	},
}

func TestLine(t *testing.T) {
	for text, want := range golden {
		if got, err := parseLine([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if got := line(want); string(got) != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	for _, bad := range []string{
		"", "0000:000011:5ed86d\x00", "0000:00001g:5ed86d:00000000000000000000ffffc6120002\x00",
		"0000:000011:5ed86d:0000\x00", "0000:000011:5ed86d:00000000000000000000000000000000\x00",
	} {
		if _, err := parseLine([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzLine(tf *testing.F) {
	f := fuzzing.New(tf)
	for text := range golden {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parseLine(text)
		if err != nil || p.QPN > 0xffffff || p.PSN > 0xffffff {
			return
		}
		if again, err := parseLine(line(p)); err != nil || again != p {
			t.Errorf("%q: %v, then %v, %v", text, p, again, err)
		}
	})
}

func TestCheck(t *testing.T) {
	g := &game{size: 5000, Resources: &rc.Resources{Buf: make([]byte, 3*5000)}}
	wc := &verbs.WC{ByteLen: 5000}
	first := bytes.Repeat([]byte{0x7b}, 5000)
	copy(g.buffer(0), first)
	if err := g.check(wc); err != nil {
		t.Error(err)
	}
	for _, i := range []int{0, 4096} {
		g.buffer(0)[i] = 0
	}
	if err := g.check(wc); err != nil {
		t.Error(err)
	}
	fill(g.buffer(0), 9)
	if err := g.check(wc); err != nil {
		t.Error(err)
	}
	for i := range 5000 {
		g.buffer(0)[i] ^= 1
		if err := g.check(wc); err == nil {
			t.Errorf("damage at byte %d is not seen", i)
		}
		g.buffer(0)[i] ^= 1
	}
	wc.ByteLen--
	if err := g.check(wc); err == nil {
		t.Error("a short message is not seen")
	}
}
