package rdma_test

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// idCM counts the identifiers that there are.
type idCM struct {
	verbs.ConnectionManager
	ids atomic.Int32
}

type countedID struct {
	verbs.CMID
	cm *idCM
}

func (c *idCM) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	id, err := c.ConnectionManager.CreateID(handler)
	if err == nil {
		c.ids.Add(1)
	}
	return countedID{id, c}, err
}

func (i countedID) Destroy() error {
	i.cm.ids.Add(-1)
	return i.CMID.Destroy()
}

// TestListenInVain: a listener that couldn't be made leaves nothing with the connection manager.
func TestListenInVain(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	cm := &idCM{ConnectionManager: r.targetNIC}
	for name, addr := range map[string]netip.AddrPort{
		"a port in use": r.addr, "another's address": netip.AddrPortFrom(r.hostNIC.Device().Attr().Addr, 4420),
	} {
		l, err := rdma.ListenTarget(cm, addr, r.target, rdma.TargetConfig{})
		if err == nil {
			_ = l.Close()
			t.Errorf("%s: it listens", name)
		}
		if n := cm.ids.Swap(0); n != 0 {
			t.Errorf("%s: %d identifiers are left", name, n)
		}
	}
}
