package tests

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"
	"time"
)

// TestAddressChange: a host whose address changes while it is connected, as with DHCP, reconnects from the new one, and
// what it wrote is intact.
func TestAddressChange(t *testing.T) {
	alone(t)
	l := newLossyLink(t, lossyConfig{mtu: 4200, rate: 125e6, queue: 1 << 20})
	l.serve(t)
	e := l.ends[0]
	for _, transport := range transports {
		load := startOn(t, e.do, "nvmeinit", verifyLoad("5s", "-t", transport, "-a", l.ends[1].addr.String(), "-s", nvmePort, "--ctrl-loss-tmo", "60",
			"-k", "2")...) // nothing else tells TCP of the loss
		before := e.received(t)
		eventually(t, time.Minute, "data", func() bool { return e.received(t) > before+1<<20 })
		old := e.addr
		e.addr = old.Next().Next()
		if err := e.in(func() error {
			if err := e.ip(fmt.Sprintf("addr del %s/24 dev %s", old, lossyDevice)); err != nil {
				return err
			}
			return e.ip(fmt.Sprintf("addr add %s/24 dev %s", e.addr, lossyDevice))
		}); err != nil {
			t.Fatal(err)
		}
		if r := load.pathReports(t, 0)[atPort(transport, l.ends[1].addr.String()+":"+nvmePort)]; r.State != "live" || r.Losses == 0 || r.Connects < 2 {
			t.Errorf("%s: %+v", transport, r)
		}
	}
}

// received returns how many bytes have come through the device so far.
func (e *linkEnd) received(t *testing.T) int {
	t.Helper()
	var links []struct {
		Stats struct{ RX struct{ Bytes int } } `json:"stats64"`
	}
	if err := e.in(func() error {
		out, err := exec.Command("ip", "-json", "-statistics", "link", "show", "dev", lossyDevice).Output()
		if err != nil {
			return err
		}
		return json.Unmarshal(out, &links)
	}); err != nil || len(links) != 1 {
		t.Fatalf("statistics of %d devices: %v", len(links), err)
	}
	return links[0].Stats.RX.Bytes
}
