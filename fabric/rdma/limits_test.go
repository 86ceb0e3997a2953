package rdma_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestLimitsOfAll: what all hosts together may have is limited too, and a host that comes too late gets the reject code
// for that.
func TestLimitsOfAll(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits target.Limits
		memory int64
	}{
		{"connections", target.Limits{Connections: 1}, 8 << 20},
		// A queue of 128 takes half a MiB, out of one for all.
		{"buffers", target.Limits{}, 2 << 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := simNetwork(false)
				tgt, err := target.New(target.Config{Limits: tc.limits})
				if err != nil {
					t.Fatal(err)
				}
				tn := newSimNIC(t, n, simTarget)
				l := listen(t, tn, simNVMe, tgt, rdma.TargetConfig{Memory: tc.memory})
				request := func(from *simNIC) (*rawPeer, verbs.CMEvent) {
					p := &rawPeer{t: t}
					return p, p.request(from, []byte{0, 0, 1, 0, 128, 0, 127, 0, 31: 0})
				}
				early, late := newSimNIC(t, n, simHost), newSimNIC(t, n, replayOther)
				first, ev := request(early)
				if ev.Type != verbs.CMEstablished {
					t.Fatalf("%v, reason %v", ev.Type, ev.Reason)
				}
				second, ev := request(late)
				if ev.Type != verbs.CMRejected || ev.Reason != verbs.RejectConsumer ||
					rdma.RejectStatus(binary.LittleEndian.Uint16(ev.Param.PrivateData[2:])) != rdma.RejectNoResources {
					t.Errorf("%v, reason %v, private data %x: want a rejection for want of resources", ev.Type, ev.Reason, ev.Param.PrivateData)
				}
				second.close()
				first.close()
				time.Sleep(time.Second)
				third, ev := request(late)
				if ev.Type != verbs.CMEstablished {
					t.Errorf("there is room again: %v, reason %v", ev.Type, ev.Reason)
				}
				third.close()
				early.close(t)
				late.close(t)
				if err := errors.Join(l.Close(), tgt.Close(context.Background())); err != nil {
					t.Error(err)
				}
				tn.close(t)
			})
		})
	}
}

// TestMoreThanTheQueue: a host that has more commands outstanding than its queue has entries finds no receive for them,
// and waits; other hosts don't.
func TestMoreThanTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries, extra = 32, 8
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer})
		defer r.close()
		admin, io := r.controller(0)
		defer admin.close()
		defer io.close()
		r.net.SetFilter(dropReadResponses)
		for range entries + extra {
			io.sendKeyed(blocks(nvme.OpWrite, 0, sglBlock), 0, sglBlock)
			time.Sleep(100 * time.Microsecond)
		}
		if n := r.tn.dev.Counters()[roce.OutOfBuffer]; n == 0 {
			t.Error("no command was refused with receiver not ready")
		}
		r.honest.work('a')
		if n := r.listener.Counters().Capsules.Load(); len(io.answers) != 0 {
			t.Errorf("%d answers without data, of %d commands", len(io.answers), n)
		}
		r.net.SetFilter(nil)
		for range entries + extra {
			if cqe := io.answer(); !cqe.Status().OK() {
				t.Errorf("status %v", cqe.Status())
			}
		}
	})
}

// TestBuffersOfNewcomers: hosts that connect with large queues and never send Connect don't prevent another from
// connecting at its first attempt, nor disturb one that is connected; if there is only one of them, it keeps what it
// has.
func TestBuffersOfNewcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Room for seven queues of 128 entries, and some of 32.
		r := newSGLRig(t, rdma.TargetConfig{Memory: 8 << 20, MaxTransfer: sglTransfer})
		defer r.close()
		const attackers = 3
		var nics [attackers]*simNIC
		for k := range nics {
			nics[k] = newSimNIC(t, r.net, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(k)}), 4791))
			defer nics[k].close(t)
		}
		var peers []*rawPeer
		defer func() {
			for _, p := range peers {
				p.close()
			}
		}()
		ask := func(from *simNIC) bool {
			p := &rawPeer{t: t}
			peers = append(peers, p)
			ev := p.request(from, []byte{0, 0, 1, 0, 128, 0, 127, 0, 31: 0})
			time.Sleep(10 * time.Millisecond) // the connection that gives way has gone
			return ev.Type == verbs.CMEstablished
		}
		for i := 0; ask(nics[0]); i++ {
			if i == 7 {
				t.Fatal("one address has all the memory")
			}
		}
		if n := r.listener.Counters().GaveWay.Load(); n != 0 {
			t.Errorf("%d connections gave way to others of their address", n)
		}
		for range 5 {
			for k := range nics {
				ask(nics[k])
			}
			admin, io := r.controller(0) // calls Fatal if it is refused
			r.honest.work('a')
			admin.close()
			io.close()
			time.Sleep(10 * time.Millisecond)
		}
		if n := r.listener.Counters().GaveWay.Load(); n == 0 {
			t.Error("nobody gave way: nothing is shown")
		}
	})
}

// TestAllocRefused: a request for an impossible amount of memory gets an error that says what is wrong with it, rather
// than that there is no memory left.
func TestAllocRefused(t *testing.T) {
	nic := openNIC(t)
	defer nic.Close()
	tr := newTransport(t, nic, rdma.HostConfig{Memory: 1 << 20})
	defer tr.Close()
	for n, want := range map[int]error{0: host.ErrRange, -1: host.ErrRange, math.MinInt: host.ErrRange, 1 << 30: host.ErrNoMemory} {
		if b, err := tr.Alloc(n); b != nil || !errors.Is(err, want) || strings.Contains(err.Error(), "queue") {
			t.Errorf("%d bytes: %d and %v, want %v", n, len(b), err, want)
		}
	}
}
