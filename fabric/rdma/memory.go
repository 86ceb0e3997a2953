package rdma

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
)

// memory is an arena whose chunks are registered once with every device that uses it. Allocation takes no lock of this
// type; domains are few and live as long as the memory.
type memory struct {
	arena  *mem.Arena
	access verbs.Access
	added  func(chunk []byte) // called with each chunk; may be nil
	short  func(err error)    // called if there is no memory though more is allowed; may be nil
	now    func() int64       // the clock for the time at which completions are polled; nil if not needed

	mu      sync.Mutex
	chunks  [][]byte
	domains []*domain
}

// domain is what this binding has on one device: a protection domain, the registrations of the arena's chunks and of
// volumes' mappings, and completion queues.
type domain struct {
	dev verbs.Device
	pd  verbs.PD
	now func() int64

	chunks  atomic.Pointer[[]verbs.MR] // by chunk index
	regions atomic.Pointer[map[*blockdev.Region]verbs.MR]

	mu  sync.Mutex // held by writers of regions
	cqs []*completions
}

// newMemory makes a memory that has room for buffers of largest bytes whenever enough has been freed; 0 means buffers
// of any usual size.
func newMemory(maxBytes int64, largest int, access verbs.Access) (*memory, error) {
	m := &memory{access: access}
	arena, err := mem.New(mem.Config{Max: maxBytes, Largest: largest, OnGrow: m.grown, OnFail: m.failed})
	if err != nil {
		return nil, fmt.Errorf("memory for data: %w", err)
	}
	m.arena = arena
	return m, nil
}

// grown registers a new chunk with every device before any of it is handed out. A device that is closed is forgotten.
func (m *memory) grown(index int, chunk []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range slices.Clone(m.domains) {
		switch err := d.addChunk(index, chunk, m.access); {
		case errors.Is(err, verbs.ErrClosed):
			m.domains = slices.DeleteFunc(m.domains, func(other *domain) bool { return other == d })
		case err != nil:
			return err
		}
	}
	m.chunks = append(m.chunks[:index], chunk)
	if m.added != nil {
		m.added(chunk)
	}
	return nil
}

// failed passes on why there is no memory.
func (m *memory) failed(err error) {
	if m.short != nil {
		m.short(err)
	}
}

// none says why the buffers of a queue found no memory.
func (m *memory) none(depth int) error {
	return fmt.Errorf("%w for the buffers of a queue of %d: %w", verbs.ErrNoMemory, depth, m.arena.Err())
}

// minSGE is how many pieces of memory a work request has to take: a capsule is a command and its data.
const minSGE = 2

// on returns the domain of dev, which is made at first use. The error is verbs.ErrUnsupported if dev can't be used.
func (m *memory) on(dev verbs.Device) (*domain, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.domains {
		if d.dev == dev {
			return d, nil
		}
	}
	if attr := dev.Attr(); attr.MaxSGE < minSGE {
		return nil, fmt.Errorf("%w: %s has %d scatter/gather entries per work request (MaxSGE): want at least %d, for a command and its data",
			verbs.ErrUnsupported, attr.Name, attr.MaxSGE, minSGE)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, fmt.Errorf("protection domain on %s: %w", dev.Attr().Name, err)
	}
	d := &domain{dev: dev, pd: pd, now: m.now}
	d.chunks.Store(new([]verbs.MR))
	d.regions.Store(&map[*blockdev.Region]verbs.MR{})
	for i, c := range m.chunks {
		if err := d.addChunk(i, c, m.access); err != nil {
			d.close()
			return nil, err
		}
	}
	m.domains = append(m.domains, d)
	return d, nil
}

// addChunk registers a chunk. Called with memory.mu held: chunks are added in the order of their index. If the
// registration with another device failed, the same index comes again, and the new chunk takes its place.
func (d *domain) addChunk(index int, chunk []byte, access verbs.Access) error {
	mr, err := d.pd.RegMR(chunk, access)
	if err != nil {
		return fmt.Errorf("registering %d bytes with %s: %w", len(chunk), d.dev.Attr().Name, err)
	}
	old := *d.chunks.Load()
	if index < len(old) {
		_ = old[index].Dereg()
	}
	next := append(slices.Clone(old[:index]), mr)
	d.chunks.Store(&next)
	return nil
}

// sge describes b to the device; ok is false if b is not in the arena, or in a chunk that was made after the device was
// closed.
func (m *memory) sge(d *domain, b []byte) (verbs.SGE, verbs.MR, bool) {
	index, offset, ok := m.arena.ChunkOf(b)
	chunks := *d.chunks.Load()
	if !ok || index >= len(chunks) {
		return verbs.SGE{}, nil, false
	}
	mr := chunks[index]
	return verbs.SGE{Addr: mr.Addr() + uint64(offset), Length: uint32(len(b)), LKey: mr.LKey()}, mr, true
}

// partOf returns the i-th piece, of n bytes, of whole.
func partOf(whole verbs.SGE, i, n int) verbs.SGE {
	return verbs.SGE{Addr: whole.Addr + uint64(i*n), Length: uint32(n), LKey: whole.LKey}
}

// offsetIn returns the offset of part inside whole.
func offsetIn(whole, part []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(whole))))
}

// region returns the registration of a volume's mapping, which is made at first use and kept while the volume is a
// namespace. Peers are never given its R_Key: the memory is sent from and, if the volume lends it, READ into. The
// registration belongs to the mapping, not to its address, where another volume may be mapped when this one is gone.
func (d *domain) region(region *blockdev.Region) (verbs.MR, error) {
	if mr := (*d.regions.Load())[region]; mr != nil {
		return mr, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	old := *d.regions.Load()
	if mr := old[region]; mr != nil {
		return mr, nil
	}
	var access verbs.Access
	if region.Lent {
		access = verbs.AccessLocalWrite | verbs.AccessStreamed
	}
	if region.File {
		access |= verbs.AccessOnDemand
	}
	mr, err := d.pd.RegMR(region.Mem, access)
	if region.File && errors.Is(err, verbs.ErrUnsupported) { // then pages are pinned when they are registered, and none goes missing
		mr, err = d.pd.RegMR(region.Mem, access&^verbs.AccessOnDemand)
	}
	if err != nil {
		return nil, fmt.Errorf("registering a volume of %d bytes with %s: %w", len(region.Mem), d.dev.Attr().Name, err)
	}
	next := maps.Clone(old)
	next[region] = mr
	d.regions.Store(&next)
	return mr, nil
}

// forget drops the registration of a mapping from which nothing is sent any more.
func (d *domain) forget(region *blockdev.Region) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := *d.regions.Load()
	mr := old[region]
	if mr == nil {
		return
	}
	next := maps.Clone(old)
	delete(next, region)
	d.regions.Store(&next)
	_ = mr.Dereg() // fails if the device is closed, which has freed it then
}

// close frees all registrations. A device that is already closed has freed them itself.
func (d *domain) close() {
	for _, s := range d.cqs {
		_ = s.cq.Destroy()
	}
	for _, mr := range *d.chunks.Load() {
		_ = mr.Dereg()
	}
	for _, mr := range *d.regions.Load() {
		_ = mr.Dereg()
	}
	_ = d.pd.Dealloc()
}

// forget drops every device's registration of a volume's mapping.
func (m *memory) forget(region *blockdev.Region) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.domains {
		d.forget(region)
	}
}

// close unregisters the memory everywhere and frees it. It must not be in use any more.
func (m *memory) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.domains {
		d.close()
	}
	m.domains = nil
	m.arena.Close()
}
