package main

import (
	"context"
	"io"
	"net/netip"
	"sync"
	"testing"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/examples/internal/rctest"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// flushingCM is an RNIC whose queue pairs go to ERR by themselves when the peer disconnects, as those of iWARP do, and
// whose CMDisconnected comes only after the flush was seen.
type flushingCM struct {
	verbs.ConnectionManager
	seen chan struct{} // closed when a flush was polled
	once sync.Once
}

type flushingID struct {
	verbs.CMID
	cm *flushingCM
}

type watchedDevice struct {
	verbs.Device
	cm *flushingCM
}

type watchedCQ struct {
	verbs.CQ
	cm *flushingCM
}

func (c *flushingCM) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	id, err := c.ConnectionManager.CreateID(func(e verbs.CMEvent) {
		if e.Type == verbs.CMDisconnected {
			_ = e.ID.QP().Modify(verbs.QPAttr{State: verbs.Err})
			<-c.seen
		}
		e.ID = flushingID{e.ID, c}
		handler(e)
	})
	return flushingID{id, c}, err
}

func (i flushingID) Device() verbs.Device { return watchedDevice{i.CMID.Device(), i.cm} }

func (i flushingID) CreateQP(pd verbs.PD, init verbs.QPInitAttr) (verbs.QP, error) {
	init.SendCQ = init.SendCQ.(watchedCQ).CQ
	init.RecvCQ = init.RecvCQ.(watchedCQ).CQ
	return i.CMID.CreateQP(pd, init)
}

func (d watchedDevice) CreateCQ(cqe int, handler func(verbs.CQ)) (verbs.CQ, error) {
	cq, err := d.Device.CreateCQ(cqe, handler)
	return watchedCQ{cq, d.cm}, err
}

func (c watchedCQ) Poll(wc []verbs.WC) int {
	n := c.CQ.Poll(wc)
	for i := range wc[:n] {
		if wc[i].Status == verbs.WCWRFlushErr {
			c.cm.once.Do(func() { close(c.cm.seen) })
		}
	}
	return n
}

// TestFlushBeforeDisconnected: the server has served its client although its receive is flushed before the event says
// that the client has disconnected.
func TestFlushBeforeDisconnected(t *testing.T) {
	addr := rctest.Addr(t)
	at := netip.MustParseAddr(addr)
	nic, err := rc.OpenNIC(at, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	defer nic.Close()
	cm := &flushingCM{ConnectionManager: nic, seen: make(chan struct{})}
	var n int
	server := func(ctx context.Context, out io.Writer) (err error) {
		n, err = serve(ctx, cm, netip.AddrPortFrom(at, 7174), out)
		return err
	}
	_, _, e1, e2 := rctest.Run(t.Context(), server, role(t, "-count", "3", addr))
	if n != 3 || e1 != nil || e2 != nil {
		t.Errorf("%d pings, server %v, client %v; want 3", n, e1, e2)
	}
}
