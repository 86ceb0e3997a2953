package tests

import (
	"fmt"
	"testing"
	"time"
)

// TestLowerMTU: a target whose interface has a lower MTU than when it was started, though the host's hasn't, is
// connected to with packets that get through.
func TestLowerMTU(t *testing.T) {
	alone(t)
	l := newLossyLink(t, lossyConfig{mtu: 4200, rate: 125e6, queue: 1 << 20})
	l.serve(t)
	e := l.ends[1]
	if err := e.in(func() error { return e.ip(fmt.Sprintf("link set %s mtu 1500", lossyDevice)) }); err != nil {
		t.Fatal(err)
	}
	r := startOn(t, l.ends[0].do, "nvmeinit", "bench", "-t", "rdma", "-a", e.addr.String(), "-s", nvmePort, "-n", testNQN,
		"-k", "60", "--rw", "randwrite", "--bs", "16k", "--iodepth", "4", "--size", "4m", "--verify", "crc32c").result(t, 3*time.Minute)
	if r.code != 0 {
		t.Errorf("exit code %d: %s\n%s", r.code, r.stderr, r.stdout)
	}
}
