package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/race"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// mishap is what befalls a conversation when a packet is sent, and what is said in it.
type mishap struct {
	happen func(c *conversation)
	talk   func(c *conversation)
}

var mishaps = map[string]mishap{
	"cut":       {(*conversation).cut, (*conversation).survive},
	"cancelled": {func(c *conversation) { c.cancel() }, (*conversation).giveIn},
}

// TestEachPacket cuts the network for a while when each packet of a whole conversation is sent, from the first to the
// last one, or cancels then what the host does. Who has several tries notices nothing of a cut but the time that it
// takes; what is cancelled ends soon; and nothing is left behind. One run takes every few packets, from a random one on.
func TestEachPacket(t *testing.T) {
	step := 5
	if race.Enabled {
		step = 31
	}
	for _, kind := range []nvme.TransportType{nvme.TransportRDMA, nvme.TransportTCP} {
		for name, m := range mishaps {
			t.Run(fmt.Sprintf("%v %s", kind, name), func(t *testing.T) {
				for at, more := rand.IntN(step), true; more && !t.Failed(); at += step {
					synctest.Test(t, func(t *testing.T) {
						c := newConversation(t, kind, at, m)
						m.talk(c)
						c.end()
						more = !c.when.IsZero()
					})
				}
			})
		}
	}
}

// conversation is a world of one host and one target, and what they say to each other from the first packet on.
type conversation struct {
	w      *world
	at     int // the packet that the mishap befalls
	ctx    context.Context
	cancel func()

	mu   sync.Mutex
	sent int
	when time.Time // of the mishap
}

func newConversation(t *testing.T, kind nvme.TransportType, at int, m mishap) *conversation {
	t.Helper()
	port, nic := netip.AddrFrom4([4]byte{10, 1, 0, 1}), netip.AddrFrom4([4]byte{10, 2, 0, 1})
	w := &world{
		t: t, began: time.Now(), net: simnet.New(1), kinds: map[netip.Addr]nvme.TransportType{port: kind},
		limits: limits{kato: time.Second, connect: 2 * time.Second, io: 2 * time.Second, reconnect: 200 * time.Millisecond},
		tcp:    overTCP{headerDigest: true, dataDigest: true, inCapsule: 4 << 10, maxH2CData: 4 << 10, memory: 4 << 20},
	}
	w.net.SetDefault(goodLink)
	w.disks = []*disk{newDisk(t, rand.New(rand.NewPCG(1, 0)), 0, false)}
	h := &machine{w: w, id: nvme.HostID{1, 15: 1}, addrs: []netip.Addr{nic}, paths: []route{{0, port}}}
	h.nqn = h.id.NQN()
	w.hosts = []*machine{h}
	w.auth = &target.Authentication{Hosts: map[string]target.HostSecrets{h.nqn: {Host: newSecret()}}, DHGroups: []nvme.DHGroup{nvme.DHNull}}
	w.servers = []*server{{w: w, addrs: []netip.Addr{port}, store: &store{kept: map[string][]byte{}}}}
	w.check("start", w.servers[0].start())
	w.check("open", h.open())
	c := &conversation{w: w, at: at}
	c.ctx, c.cancel = context.WithCancel(t.Context())
	w.net.SetFilter(func(*simnet.Datagram) simnet.Action {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.sent++; c.sent > at && c.when.IsZero() {
			c.when = time.Now()
			go m.happen(c)
		}
		return simnet.Action{}
	})
	return c
}

// cut loses everything for longer than either side waits for the other.
func (c *conversation) cut() {
	c.w.net.Cut(anyAddr, anyAddr)
	time.AfterFunc(3*time.Second, func() { c.w.net.Restore(anyAddr, anyAddr) })
}

func (c *conversation) errorf(format string, args ...any) {
	c.w.t.Helper()
	c.w.errorf("packet %d: %s", c.at, fmt.Sprintf(format, args...))
}

// survive connects again until that succeeds, and then expects everything to succeed.
func (c *conversation) survive() {
	m := c.w.hosts[0]
	for try := 1; ; try++ {
		err := m.connect()
		if err == nil {
			break
		}
		if try == 4 {
			c.w.t.Fatalf("packet %d: %v", c.at, err)
		}
	}
	n := m.space(0)
	c.talk(c.w.t.Context(), n.Namespace, func(what string, err error) {
		if err != nil {
			c.errorf("%s: %v", what, err)
		}
	})
	for _, ctrl := range m.subsystem().Controllers() {
		if err := ctrl.Authenticate(c.ctx, nil); err != nil && !errors.Is(err, host.ErrLost) {
			c.errorf("Authenticate: %v", err)
		}
	}
	c.talk(c.w.t.Context(), n.Namespace, func(what string, err error) {
		if err != nil {
			c.errorf("%s after Authenticate: %v", what, err)
		}
	})
	m.ended(m.subsystem())
}

// giveIn expects everything to end soon after the mishap.
func (c *conversation) giveIn() {
	check := func(what string, err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, host.ErrLost) {
			c.errorf("%s: %v", what, err)
		}
		if since := time.Since(c.when); !c.when.IsZero() && since > 100*time.Millisecond || c.when.IsZero() && err != nil {
			c.errorf("%s: %v, %v after it was cancelled", what, err, since)
		}
	}
	ctrl, err := host.Connect(c.ctx, c.w.hosts[0].path(c.w.hosts[0].paths[0]))
	check("Connect", err)
	if err != nil {
		return
	}
	n, err := ctrl.Namespace(c.ctx, 1)
	check("Namespace", err)
	if err == nil {
		var auth sync.WaitGroup
		auth.Go(func() { check("Authenticate", ctrl.Authenticate(c.ctx, nil)) })
		c.talk(c.ctx, n, check)
		auth.Wait()
	}
	check("Shutdown", ctrl.Shutdown(c.ctx))
}

// talk reads and writes, a part of it at once.
func (c *conversation) talk(ctx context.Context, n *host.Namespace, check func(what string, err error)) {
	var users sync.WaitGroup
	for i := range int64(2) {
		users.Go(func() {
			p, q := bytes.Repeat([]byte{byte(i + 1)}, 11*n.BlockSize()), make([]byte, 11*n.BlockSize())
			_, err := n.WriteAt(ctx, p, i*int64(len(p)))
			check("write", err)
			if err != nil {
				return
			}
			_, err = n.ReadAt(ctx, q, i*int64(len(p)))
			check("read", err)
			if err == nil && !bytes.Equal(p, q) {
				c.errorf("read %d after %d was written", q[0], p[0])
			}
		})
	}
	users.Wait()
	check("flush", n.Flush(ctx))
}

// end expects that nothing is left once a target has given up what it may.
func (c *conversation) end() {
	w := c.w
	c.cancel()
	time.Sleep(3 * time.Minute)
	w.quietServer(0, w.servers[0], map[netip.Addr]int{})
	for _, a := range w.hosts[0].adapters {
		w.check("close", a.close())
	}
	w.check("stop", w.servers[0].stop(0, false))
	w.check("close", w.disks[0].volume.Close())
}
