package roce

import (
	"sync/atomic"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// mr is a memory region. Its addresses are the device's own, not the process's: a peer learns nothing about the latter,
// and between two regions there are gaps that no key opens.
type mr struct {
	region  // key is the R_Key
	d       *Device
	lkey    uint32
	rkey    uint32 // constant copy of the key, for readers without the lock
	windows int    // bound to it
}

const pageSize = 4096

// forPeers is the access that lets peers use memory, directly or through a window.
const forPeers = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic | verbs.AccessMWBind

// RegMR registers buf.
func (p *pd) RegMR(buf []byte, access verbs.Access) (verbs.MR, error) {
	d := p.d
	switch {
	case len(buf) == 0:
		return nil, d.failf("register MR", verbs.ErrInvalid, "no memory")
	case access&(verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic) != 0 && access&verbs.AccessLocalWrite == 0:
		return nil, d.failf("register MR", verbs.ErrInvalid, "remote write or atomic access needs local write access")
	case access&verbs.AccessOnDemand != 0 && access&forPeers != 0:
		return nil, d.failf("register MR", verbs.ErrUnsupported, "peers and memory windows can't have memory whose pages may be missing")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.usable("register MR"); err != nil {
		return nil, err
	}
	m := &mr{d: d, region: region{pd: p, access: access, buf: buf, base: d.addressFor(buf)}}
	m.key = d.rkeys.reserve()
	m.rkey = m.key
	d.rkeys.open(&m.region)
	d.lkeys.insert(m)
	p.refs++
	return m, nil
}

// addressFor allocates addresses for buf, with the same offset in the page as in the process, so that alignment means
// the same in both.
func (d *Device) addressFor(buf []byte) uint64 {
	inPage := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))) % pageSize
	base := d.nextVA + inPage
	end := base + uint64(len(buf))
	d.nextVA = (end+pageSize-1)/pageSize*pageSize + pageSize
	return base
}

// usable reports whether the domain and its device still exist. The device's lock is held.
func (p *pd) usable(op string) error {
	if p.d.closed || p.freed {
		return p.d.fail(op, verbs.ErrClosed)
	}
	return nil
}

// Addr returns the address of the first byte.
func (m *mr) Addr() uint64 { return m.base }

// LKey returns the key for local use.
func (m *mr) LKey() uint32 { return m.lkey }

// RKey returns the key for peers.
func (m *mr) RKey() uint32 { return m.rkey }

// Dereg makes the keys invalid and returns once the device no longer uses the memory.
func (m *mr) Dereg() error {
	d := m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case m.key == 0:
		return d.failf("deregister MR", verbs.ErrClosed, "L_Key %#x", m.lkey)
	case m.windows > 0:
		return d.failf("deregister MR", verbs.ErrBusy, "%d memory windows are bound to it", m.windows)
	}
	d.rkeys.remove(m.key)
	d.lkeys.remove(m.lkey)
	m.key = 0
	m.pd.refs--
	d.quiesce()
	return nil
}

// local returns the memory of e, for a queue pair of domain p, and the access with which it is registered; ok is false
// if the L_Key is not of the domain, the range is not inside the region, or it lacks some of access. The device's lock
// is held.
func (d *Device) local(p *pd, e *verbs.SGE, access verbs.Access) (b []byte, has verbs.Access, ok bool) {
	m := d.lkeys.lookup(e.LKey)
	if m == nil || m.pd != p || m.access&access != access {
		return nil, 0, false
	}
	b, ok = m.slice(e.Addr, int(e.Length))
	return b, m.access, ok
}

// remote returns the region that key opens to a peer of q for access, or nil. The device's lock is held.
func (d *Device) remote(q *qp, key uint32, access verbs.Access) *region {
	r := d.rkeys.lookup(key)
	if r == nil || r.pd != q.pd || r.qp != nil && r.qp != q || r.access&access != access {
		return nil
	}
	return r
}

// mw is a type 2 memory window. Its region is in the table of R_Keys while it is bound.
type mw struct {
	region
	d     *Device
	mr    *mr           // the region that it is bound to; nil while unbound
	index int           // in qp.bound
	rkey  atomic.Uint32 // of the binding, or of the next one; 0 until the first is asked for
	freed bool
}

// AllocMW makes an unbound window.
func (p *pd) AllocMW() (verbs.MW, error) {
	d := p.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.usable("allocate MW"); err != nil {
		return nil, err
	}
	w := &mw{d: d}
	w.pd, w.window = p, w
	p.refs++
	return w, nil
}

// RKey returns the key of the current binding, or of the next one.
func (w *mw) RKey() uint32 {
	if key := w.rkey.Load(); key != 0 {
		return key
	}
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	return w.nextKey()
}

// nextKey is RKey with the device's lock held. A window has no key until somebody asks for one: of many windows most
// may never be used, and the table of keys is read for each packet.
func (w *mw) nextKey() uint32 {
	if w.rkey.Load() == 0 && !w.freed {
		w.rkey.Store(w.d.rkeys.reserve())
	}
	return w.rkey.Load()
}

// Dealloc frees the window; its binding ends.
func (w *mw) Dealloc() error {
	d := w.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.freed || d.closed && w.mr == nil {
		return d.fail("deallocate MW", verbs.ErrClosed)
	}
	w.freed = true
	w.unbind()
	d.rkeys.remove(w.rkey.Load())
	w.pd.refs--
	return nil
}

// bind binds the window to b, for the peer of q, under key, which the window had when the work request was posted. It
// reports whether that is allowed. The device's lock is held.
func (w *mw) bind(q *qp, key uint32, b *verbs.MWBind) bool {
	m, ok := b.MR.(*mr)
	if !ok || w.pd != q.pd || m.pd != q.pd || m.key == 0 || w.freed || w.mr != nil ||
		m.access&verbs.AccessMWBind == 0 || b.Length == 0 {
		return false
	}
	const writes = verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	if b.Access&writes != 0 && m.access&verbs.AccessLocalWrite == 0 {
		return false
	}
	if b.Length > uint64(len(m.buf)) || key != w.rkey.Load() {
		return false
	}
	buf, ok := m.slice(b.Addr, int(b.Length))
	if !ok {
		return false
	}
	w.mr, w.key, w.qp, w.access, w.base, w.buf = m, key, q, b.Access, b.Addr, buf
	m.windows++
	w.index = len(q.bound)
	q.bound = append(q.bound, w)
	w.d.rkeys.open(&w.region)
	return true
}

// unbind ends the binding, if there is one, and draws the next key. When it returns, no answer to a READ through the
// window is being sent any more.
func (w *mw) unbind() {
	if w.mr == nil {
		return
	}
	if w.batch == w.d.tx.gen {
		w.d.quiesce()
	}
	w.d.rkeys.remove(w.key)
	w.mr.windows--
	w.qp.forget(w)
	w.mr, w.key, w.qp, w.buf = nil, 0, nil, nil
	w.rkey.Store(w.d.rkeys.reserve())
}

// invalidate unbinds the window that key opens, on behalf of q or its peer. It returns false unless that is a window
// bound to q.
func (d *Device) invalidate(q *qp, key uint32) bool {
	r := d.rkeys.lookup(key)
	if r == nil || r.window == nil || r.qp != q {
		return false
	}
	r.window.unbind()
	return true
}

// forget removes w, whose binding ends, from the windows bound to q.
func (q *qp) forget(w *mw) {
	last := len(q.bound) - 1
	q.bound[w.index] = q.bound[last]
	q.bound[w.index].index = w.index
	q.bound[last] = nil
	q.bound = q.bound[:last]
}

// unbindAll ends every binding to q.
func (q *qp) unbindAll() {
	for len(q.bound) > 0 {
		q.bound[len(q.bound)-1].unbind()
	}
}
