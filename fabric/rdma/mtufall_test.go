package rdma_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

// TestPathMTUFalls: if a path comes to carry only smaller packets than those of a connection, the connection ends, and
// the next one has packets that fit, if either side knows of it: requests don't fail. That side's log says why, also if
// a path MTU of 4096 still fits and only jumbo data doesn't.
func TestPathMTUFalls(t *testing.T) {
	for _, write := range []bool{false, true} {
		for _, c := range []struct {
			name         string
			host, target bool
		}{
			{"host knows", true, false},
			{"target knows", false, true},
			{"both know", true, true},
		} {
			t.Run(fmt.Sprintf("%s, write %t", c.name, write), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testPathMTUFalls(t, 1500, c.host, c.target, write) })
			})
			t.Run(fmt.Sprintf("jumbo data, %s, write %t", c.name, write), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testPathMTUFalls(t, 6000, c.host, c.target, write) })
			})
		}
	}
}

func testPathMTUFalls(t *testing.T, after int32, hostKnows, targetKnows, write bool) {
	const before = 9000
	var room atomic.Int32 // for a packet on the path
	room.Store(before)
	n := simnet.New(1)
	n.SetDefault(simnet.Link{Latency: 10 * time.Microsecond})
	n.SetFilter(func(d *simnet.Datagram) simnet.Action {
		return simnet.Action{Drop: len(d.Payload)+28 > int(room.Load())}
	})
	nic := func(addr netip.AddrPort, knows bool) *simNIC {
		known := func() int {
			if knows {
				return int(room.Load())
			}
			return before
		}
		var dev *roce.Device
		nic := simNICBehind(t, n, addr, verbs.MTU4096,
			func(d *roce.Device) uint32 { return d.VendorOptionsWithin(known()) },
			func(netip.Addr) verbs.MTU { return dev.PathMTU(known()) })
		dev = nic.dev
		return nic
	}
	tn, hn := nic(simTarget, targetKnows), nic(simHost, hostKnows)
	var log bytes.Buffer // the target's
	tgt, l := simMemoryTarget(t, tn, slog.New(slog.NewTextHandler(&log, nil)))
	tr := newTransport(t, hn, rdma.HostConfig{})
	var lost []error // why, by the host
	sub, err := multipath.Connect(t.Context(), multipath.Config{
		Changed: func(s multipath.PathStatus) {
			if s.Err != nil {
				lost = append(lost, s.Err)
			}
		},
		Paths: []host.Config{{
			Transport: tr, Remote: simNVMe, SubNQN: testNQN, HostNQN: testNQN + ".host", HostID: nvme.HostID{1}, Queues: 1,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ns, err := sub.Namespace(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	transfer := func() {
		move, data := ns.ReadAt, make([]byte, 64<<10)
		if write {
			move = ns.WriteAt
		}
		if _, err := move(t.Context(), data, 0); err != nil {
			t.Error(err)
		}
	}
	transfer()
	room.Store(after)
	for range 3 {
		transfer()
	}
	if err := errors.Join(sub.Close(), tr.Close(), l.Close(), tgt.Close(t.Context())); err != nil {
		t.Error(err)
	}
	hn.close(t)
	tn.close(t)
	why := "the path MTU fell to 1024, below the connection's of 4096"
	if after > 4096 {
		why = "the path carries smaller packets than when the connection was made, though still those of its path MTU of 4096"
	}
	if len(lost) != 1 {
		t.Fatalf("the connection was lost %d times, want once: %v", len(lost), lost)
	}
	var fell *rdma.PathMTUError
	if errors.As(lost[0], &fell) != hostKnows || hostKnows && fell.Error() != why {
		t.Errorf("the host, which knows of the path's MTU: %t, lost its connection because of: %v", hostKnows, lost[0])
	}
	if strings.Contains(log.String(), why) != targetKnows {
		t.Errorf("the target, which knows of the path's MTU: %t, logged:\n%s", targetKnows, log.String())
	}
}
