package target

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

const (
	crowdLimit     = 32 // connections of the target
	crowdAttackers = 4
)

// crowdRig is a target that demands authentication, with few connections and attackers who take them.
type crowdRig struct {
	t       *testing.T
	tg      *Target
	secrets HostSecrets
	all     []*fakeConn // the attackers'
}

func newCrowdRig(t *testing.T) *crowdRig {
	r := &crowdRig{t: t, secrets: HostSecrets{Host: testSecret(t)}}
	r.tg = newTargetWith(t, func(c *Config) {
		c.Limits.Connections = crowdLimit
		c.Authentication = &Authentication{Hosts: map[string]HostSecrets{testHost: r.secrets}, DHGroups: []nvme.DHGroup{nvme.DHNull}}
	}, memVolume(t, 1<<20, 4096))
	return r
}

// come makes a connection, for which another may give way.
func (r *crowdRig) come(addr string) (*fakeConn, error) {
	c := &fakeConn{t: r.t, attr: attr(nvme.TransportTCP), out: map[*fakeRequest]struct{}{}, closed: make(chan struct{})}
	c.attr.Remote = netip.AddrPortFrom(netip.MustParseAddr(addr), 40000)
	var err error
	c.mu.Lock()
	c.q, err = r.tg.NewQueue(c)
	c.mu.Unlock()
	synctest.Wait() // until a connection that gives way has gone
	return c, err
}

// enter connects a host that authenticates itself.
func (r *crowdRig) enter(addr string) *fakeConn {
	r.t.Helper()
	c, err := r.come(addr)
	if err != nil {
		r.t.Fatal(err)
	}
	c.must(connectCommand(0, 31, 0), connectData(r.t, nvme.CNTLIDDynamic, testNQN))
	if err := newAuthHost(c, r.secrets).run(); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// attack makes one more connection for each attacker, if it can, and takes it as far as hold does.
func (r *crowdRig) attack(hold func(c *fakeConn)) {
	for k := range crowdAttackers {
		if c, err := r.come(fmt.Sprintf("10.0.0.%d", k)); err == nil {
			hold(c)
			r.all = append(r.all, c)
		}
	}
}

// check compares the connections that gave way with their counter, and what the attackers have with their share.
func (r *crowdRig) check() {
	r.t.Helper()
	gone := 0
	for _, c := range r.all {
		if c.isClosed() {
			gone++
			if !errors.Is(c.reason, ErrGaveWay) {
				r.t.Errorf("a connection ended because of %v", c.reason)
			}
		}
	}
	s := r.tg.Snapshot()
	if n := s.Transports[0].GaveWay; int(n) != gone || s.Connections > crowdLimit {
		r.t.Errorf("%d are counted of %d that gave way, %d connections", n, gone, s.Connections)
	}
	r.tg.mu.Lock()
	defer r.tg.mu.Unlock()
	if n := len(r.tg.queues) - 1; n > crowdLimit-crowdLimit/crowdedShare {
		r.t.Errorf("attackers have %d of %d connections", n, crowdLimit)
	}
}

// TestNewcomersGiveWay: hosts that make connection after connection, and get no further than any host can, don't keep
// out one that authenticates itself, nor disturb one that has.
func TestNewcomersGiveWay(t *testing.T) {
	for name, hold := range map[string]func(c *fakeConn){
		"no Connect": func(*fakeConn) {},
		"discovery": func(c *fakeConn) {
			c.must(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, nvme.DiscoveryNQN))
		},
		"no authentication": func(c *fakeConn) { c.must(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newCrowdRig(t)
				early := r.enter("10.0.1.1")
				for range crowdLimit {
					r.attack(hold)
				}
				for range 10 {
					late := r.enter("10.0.1.2")
					r.attack(hold)
					late.must(getProperty(nvme.PropCSTS), nil)
					late.hangUp(nil)
				}
				early.must(getProperty(nvme.PropCSTS), nil)
				r.check()
			})
		})
	}
}

// TestProvedStay: hosts that have authenticated themselves don't give way, though most connections are from their
// address.
func TestProvedStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCrowdRig(t)
		var stay []*fakeConn
		for range crowdLimit / 2 {
			stay = append(stay, r.enter("10.0.1.1"))
		}
		for range crowdLimit {
			r.attack(func(*fakeConn) {})
		}
		for _, c := range stay {
			if c.isClosed() {
				t.Fatalf("gave way: %v", c.reason)
			}
		}
	})
}

// TestMakingRoom: while a connection that gave way has yet to go, one that finds no place is told that it is worth
// trying again, and it is once that one has gone.
func TestMakingRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCrowdRig(t)
		for range crowdLimit {
			c, err := r.come("10.0.0.1")
			if err != nil {
				t.Fatalf("after %d connections: %v", len(r.all), err)
			}
			c.holdPull, c.stays = true, true // it goes when its data has come
			c.start(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN))
			r.all = append(r.all, c)
		}
		if _, err := r.come("10.0.0.2"); !errors.Is(err, ErrMakingRoom) {
			t.Errorf("one more: %v, want %v", err, ErrMakingRoom)
		}
		for _, c := range r.all {
			c.come()
		}
		synctest.Wait()
		c, err := r.come("10.0.0.2")
		if err != nil {
			t.Fatal(err)
		}
		c.must(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN))
	})
}
