package rdma_test

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestSmallerMTU: a target whose interface supports only smaller packets than the host's refuses the host's path MTU,
// and is then connected to with the largest one that it accepts.
func TestSmallerMTU(t *testing.T) {
	for m := verbs.MTU256; m <= verbs.MTU4096; m++ {
		synctest.Test(t, func(t *testing.T) {
			n := simnet.New(1)
			n.SetDefault(simnet.Link{Latency: 10 * time.Microsecond})
			tn := simNICOf(t, n, simTarget, m, (*roce.Device).VendorOptions)
			hn := newSimNIC(t, n, simHost)
			tgt, l := simMemoryTarget(t, tn, nil)
			tr := newTransport(t, hn, rdma.HostConfig{})
			writeAndRead(t, tr)
			if got, want := tn.Counters().RejectsSent.Of(verbs.RejectInvalidMTU).Load(), 2*uint64(verbs.MTU4096-m); got != want {
				t.Errorf("MTU %d: %d requests for another, want %d for two queues", m.Bytes(), got, want)
			}
			if err := errors.Join(tr.Close(), l.Close(), tgt.Close(t.Context())); err != nil {
				t.Error(err)
			}
			hn.close(t)
			tn.close(t)
		})
	}
}

// TestSmallerPath: if the path between two interfaces carries only smaller packets than they do, and only one side
// knows that, the connection gets a path MTU that works: the host asks for no larger one, the target refuses larger
// ones.
func TestSmallerPath(t *testing.T) {
	const small = verbs.MTU1024
	const room = 1500 // of the path
	within := func(d *roce.Device) uint32 { return d.VendorOptionsWithin(room) }
	path := func(netip.Addr) verbs.MTU { return small }
	for _, c := range []struct {
		name         string
		host, target func(netip.Addr) verbs.MTU
		refused      uint64
	}{
		{"host knows", path, nil, 0},
		{"target knows", nil, path, 2 * uint64(verbs.MTU4096-small)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := simnet.New(1)
				n.SetDefault(simnet.Link{Latency: 10 * time.Microsecond})
				n.SetFilter(func(d *simnet.Datagram) simnet.Action {
					return simnet.Action{Drop: len(d.Payload) > room-28}
				})
				options := func(known func(netip.Addr) verbs.MTU) func(*roce.Device) uint32 {
					if known != nil {
						return within
					}
					return (*roce.Device).VendorOptions
				}
				tn := simNICBehind(t, n, simTarget, verbs.MTU4096, options(c.target), c.target)
				hn := simNICBehind(t, n, simHost, verbs.MTU4096, options(c.host), c.host)
				tgt, l := simMemoryTarget(t, tn, nil)
				tr := newTransport(t, hn, rdma.HostConfig{})
				writeAndRead(t, tr)
				if got := tn.Counters().RejectsSent.Of(verbs.RejectInvalidMTU).Load(); got != c.refused {
					t.Errorf("%d requests for another MTU, want %d for two queues", got, c.refused)
				}
				if err := errors.Join(tr.Close(), l.Close(), tgt.Close(t.Context())); err != nil {
					t.Error(err)
				}
				hn.close(t)
				tn.close(t)
			})
		})
	}
}

// simMemoryTarget serves a memory volume at simNVMe. log may be nil.
func simMemoryTarget(t *testing.T, n *simNIC, log *slog.Logger) (*target.Target, *rdma.Listener) {
	t.Helper()
	tgt, err := target.New(target.Config{Log: log, Subsystems: []target.SubsystemConfig{{
		NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: memory(t, 1<<20)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, n, simNVMe, tgt, rdma.TargetConfig{Memory: 8 << 20})
	return tgt, l
}

// writeAndRead connects, and moves some data both ways.
func writeAndRead(t *testing.T, tr *rdma.Transport) {
	t.Helper()
	c, err := host.Connect(t.Context(), host.Config{Transport: tr, Remote: simNVMe, SubNQN: testNQN, Queues: 1, KATO: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ns := namespace(t, c, 1)
	data := make([]byte, 64<<10)
	for i := range data {
		data[i] = byte(i >> 8)
	}
	if _, err := ns.WriteAt(t.Context(), data, 0); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len(data))
	if _, err := ns.ReadAt(t.Context(), back, 0); err != nil || string(back) != string(data) {
		t.Errorf("read: %v, or other data than was written", err)
	}
}
