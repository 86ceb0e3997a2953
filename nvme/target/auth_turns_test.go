package target

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestAuthenticationTurns: those of one address who begin authentications, however many they are, keep the host of
// another waiting for one of them, not for all.
func TestAuthenticationTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		a := &Authentication{Hosts: map[string]HostSecrets{testHost: {Host: testSecret(t)}}}
		if err := tg.SetAuthentication(a); err != nil {
			t.Fatal(err)
		}
		free := occupy(tg)
		var conns []*fakeConn
		begin := func(addr string) *fakeRequest {
			c := dial(t, tg, func(c *fakeConn) { c.attr.Remote = netip.AddrPortFrom(netip.MustParseAddr(addr), 40000) })
			conns = append(conns, c)
			c.must(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN))
			r := c.start(authSend(len(negotiation())), negotiation())
			synctest.Wait()
			return r
		}
		var flood []*fakeRequest
		for range 8 {
			flood = append(flood, begin("192.0.2.1"))
		}
		host := begin("192.0.2.2")
		held := make(chan struct{})
		go func() { // stops the others when its turn comes
			tg.computing.take(netip.MustParseAddr("192.0.2.3"))
			<-held
			tg.computing.leave()
		}()
		synctest.Wait()
		tg.computing.leave()
		synctest.Wait()
		answered := 0
		for _, r := range flood {
			select {
			case <-r.done:
				answered++
			default:
			}
		}
		select {
		case <-host.done:
		default:
			t.Error("the host has to wait")
		}
		if answered != 1 {
			t.Errorf("%d of the flood were answered meanwhile, want 1", answered)
		}
		close(held)
		tg.computing.take(netip.Addr{})
		free()
		for _, c := range conns {
			c.hangUp(nil)
		}
	})
}
