package roce

import "github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"

// pd is a protection domain.
type pd struct {
	d     *Device
	refs  int // regions, windows and queue pairs
	freed bool
}

// AllocPD makes a protection domain.
func (d *Device) AllocPD() (verbs.PD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.fail("allocate PD", verbs.ErrClosed)
	}
	return &pd{d: d}, nil
}

// Device returns the device that made the domain.
func (p *pd) Device() verbs.Device { return p.d }

// Dealloc frees the domain.
func (p *pd) Dealloc() error {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	switch {
	case p.freed || p.d.closed:
		return p.d.fail("deallocate PD", verbs.ErrClosed)
	case p.refs > 0:
		return p.d.failf("deallocate PD", verbs.ErrBusy, "%d memory regions, windows and queue pairs are in it", p.refs)
	}
	p.freed = true
	return nil
}
