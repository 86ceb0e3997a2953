package target

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestNewcomersGiveWay: hosts that take connection after connection and get no further than anybody gets
// don't keep out one that does, nor disturb one that has.
func TestNewcomersGiveWay(t *testing.T) {
	const limit, attackers = 32, 4
	for name, hold := range map[string]func(c *fakeConn){
		"no Connect": func(*fakeConn) {},
		"discovery": func(c *fakeConn) {
			c.must(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, nvme.DiscoveryNQN))
		},
		"no authentication": func(c *fakeConn) { c.must(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				secrets := HostSecrets{Host: testSecret(t)}
				tg := newTargetWith(t, func(c *Config) {
					c.Limits.Connections = limit
					c.Authentication = &Authentication{Hosts: map[string]HostSecrets{testHost: secrets}, DHGroups: []nvme.DHGroup{nvme.DHNull}}
				}, memVolume(t, 1<<20, 4096))
				come := func(addr string) (*fakeConn, error) {
					c := &fakeConn{t: t, attr: attr(nvme.TransportTCP), out: map[*fakeRequest]struct{}{}, closed: make(chan struct{})}
					c.attr.Remote = netip.AddrPortFrom(netip.MustParseAddr(addr), 40000)
					var err error
					c.mu.Lock()
					c.q, err = tg.NewQueue(c)
					c.mu.Unlock()
					synctest.Wait() // who gives way has gone
					return c, err
				}
				enter := func(addr string) *fakeConn {
					t.Helper()
					c, err := come(addr)
					if err != nil {
						t.Fatal(err)
					}
					c.must(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN))
					if err := newAuthHost(c, secrets).run(); err != nil {
						t.Fatal(err)
					}
					return c
				}
				var all []*fakeConn
				attack := func() {
					for k := range attackers {
						if c, err := come(fmt.Sprintf("10.0.0.%d", k)); err == nil {
							hold(c)
							all = append(all, c)
						}
					}
				}
				early := enter("10.0.1.1")
				for range limit {
					attack()
				}
				for range 10 {
					late := enter("10.0.1.2")
					attack()
					late.must(getProperty(nvme.PropCSTS), nil)
					late.hangUp(nil)
				}
				early.must(getProperty(nvme.PropCSTS), nil)
				gone := 0
				for _, c := range all {
					if c.isClosed() {
						gone++
						if !errors.Is(c.reason, ErrGaveWay) {
							t.Errorf("a connection ended because of %v", c.reason)
						}
					}
				}
				s := tg.Snapshot()
				if n := s.Transports[0].GaveWay; int(n) != gone || s.Connections > limit {
					t.Errorf("%d are counted of %d that gave way, %d connections", n, gone, s.Connections)
				}
				tg.mu.Lock()
				if n := len(tg.queues) - 1; n > limit-limit/crowdedShare {
					t.Errorf("attackers have %d of %d connections", n, limit)
				}
				tg.mu.Unlock()
			})
		})
	}
}
