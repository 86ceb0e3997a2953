package rdma_test

import (
	"bytes"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/fabrictest"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// countingCM is an RNIC that counts what is registered with it, and the completion queues that were made.
type countingCM struct {
	verbs.ConnectionManager
	registered atomic.Int64
	cqs        atomic.Int64
}

type countingID struct {
	verbs.CMID
	cm *countingCM
}

type countingDevice struct {
	verbs.Device
	cm *countingCM
}

type countingPD struct {
	verbs.PD
	cm *countingCM
}

type countedMR struct {
	verbs.MR
	cm *countingCM
}

func (c *countingCM) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	id, err := c.ConnectionManager.CreateID(func(ev verbs.CMEvent) {
		ev.ID = countingID{ev.ID, c}
		handler(ev)
	})
	return countingID{id, c}, err
}

func (i countingID) Device() verbs.Device { return countingDevice{i.CMID.Device(), i.cm} }

func (i countingID) CreateQP(pd verbs.PD, init verbs.QPInitAttr) (verbs.QP, error) {
	return i.CMID.CreateQP(pd.(countingPD).PD, init)
}

func (d countingDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return countingPD{pd, d.cm}, err
}

func (d countingDevice) CreateCQ(cqe int, handler func(verbs.CQ)) (verbs.CQ, error) {
	d.cm.cqs.Add(1)
	return d.Device.CreateCQ(cqe, handler)
}

func (p countingPD) RegMR(buf []byte, access verbs.Access) (verbs.MR, error) {
	mr, err := p.PD.RegMR(buf, access)
	if err == nil {
		p.cm.registered.Add(1)
	}
	return countedMR{mr, p.cm}, err
}

func (m countedMR) Dereg() error {
	err := m.MR.Dereg()
	if err == nil {
		m.cm.registered.Add(-1)
	}
	return err
}

// TestRegistrationsOfVolumes: an RNIC's registration of a volume's memory ends with the namespace, even while hosts
// stay connected.
func TestRegistrationsOfVolumes(t *testing.T) {
	r := newRig(t, rdma.TargetConfig{}, memory(t, 1<<20))
	cm := &countingCM{ConnectionManager: r.targetNIC}
	r.addr = netip.AddrPortFrom(r.addr.Addr(), r.addr.Port()+1)
	l := listen(t, cm, r.addr, r.target, rdma.TargetConfig{})
	defer l.Close()
	v := memory(t, 1<<20)
	defer v.Close()
	c := r.connect(t, nil)
	defer c.Close()
	sub := r.target.Subsystem(testNQN)
	read := func(nsid uint32) {
		t.Helper()
		ns := namespace(t, c, nsid)
		got := bytes.Repeat([]byte{7}, 4096)
		if _, err := ns.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, make([]byte, len(got))) {
			t.Errorf("read of namespace %d: %v", nsid, err)
		}
	}
	read(1)
	before := cm.registered.Load()
	for range 3 {
		for nsid := range uint32(2) {
			if _, err := sub.AddNamespace(target.NamespaceConfig{NSID: 2 + nsid, Volume: v}); err != nil {
				t.Fatal(err)
			}
		}
		read(2)
		if n := cm.registered.Load(); n != before+1 {
			t.Fatalf("%d registrations with one more volume, want %d", n, before+1)
		}
		if err := sub.RemoveNamespace(2); err != nil {
			t.Fatal(err)
		}
		read(3)
		if err := sub.RemoveNamespace(3); err != nil {
			t.Fatal(err)
		}
		if n := cm.registered.Load(); n != before {
			t.Errorf("%d registrations without the volume, want %d", n, before)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if n := cm.registered.Load(); n != 0 {
		t.Errorf("%d registrations are left of a listener that is closed", n)
	}
}

// TestHostMemoryAgain: memory that was freed can be had again.
func TestHostMemoryAgain(t *testing.T) {
	nic := openNIC(t)
	defer nic.Close()
	tr, err := rdma.NewTransport(nic, rdma.HostConfig{Memory: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	fabrictest.MemoryAgain(t, tr)
}
