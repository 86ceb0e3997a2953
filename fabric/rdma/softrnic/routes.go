package softrnic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Routes connects from whichever address the route to a peer starts at, as rdma_cm does on a host with several devices.
// There is an RNIC for each such address, or a Group of Config.Engines of them, opened when it is first needed and kept
// until Close. So a connection that is made again after this host's address has changed uses the new one.
type Routes struct {
	cfg Config

	mu       sync.Mutex
	closed   bool
	open     []routed
	watchers []func(*RNIC)
}

// routed is a group of RNICs that is open.
type routed struct {
	*Group
	within bool // it was opened for an address of this host
}

var _ verbs.ConnectionManager = (*Routes)(nil)

// NewRoutes opens nothing yet. All RNICs will have the configuration cfg; an error says what is wrong with it.
func NewRoutes(cfg Config) (*Routes, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Routes{cfg: cfg}, nil
}

// Watch calls f for every RNIC: now for those that are open, and later for each one that is opened. f must not call r.
func (r *Routes) Watch(f func(*RNIC)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, f)
	for _, o := range r.open {
		o.each(f)
	}
}

// Reach returns the RNIC from which dst is reached, with address src if that is valid, and each of them in turn if there
// are several. Its errors are those of Open and OpenFor, and verbs.ErrClosed after Close.
func (r *Routes) Reach(src, dst netip.Addr) (*RNIC, error) {
	src, dst = src.Unmap(), dst.Unmap()
	from, err := sourceFor(src, dst)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("software RNIC: %w", verbs.ErrClosed)
	}
	for _, o := range r.open {
		if o.reaches(dst, from) {
			return o.next(), nil
		}
	}
	g, err := openFrom(from, dst, r.cfg)
	if err != nil {
		return nil, err
	}
	r.open = append(r.open, routed{g, from == dst})
	for _, f := range r.watchers {
		g.each(f)
	}
	return g.next(), nil
}

// reaches reports whether dst, which is to be reached from an address, is reached by o. An address of this host can be
// reached from any other that was opened for such an address.
func (o routed) reaches(dst, from netip.Addr) bool {
	addr := o.Addr()
	if from != dst {
		return addr == from
	}
	return o.within && addr != dst && addr.Is4() == dst.Is4()
}

// CreateID makes an identifier that has a device once its address is resolved. After Close the error is verbs.ErrClosed.
func (r *Routes) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("software RNIC: %w", verbs.ErrClosed)
	}
	return newRoutedID(r, handler), nil
}

func (r *Routes) from(src, dst netip.Addr) (verbs.ConnectionManager, error) { return r.Reach(src, dst) }

func (*Routes) listen(*routedID, netip.AddrPort, int) error { return errNoListener }

// Close ends every connection and closes every RNIC. A second Close returns verbs.ErrClosed.
func (r *Routes) Close() error {
	r.mu.Lock()
	open, again := r.open, r.closed
	r.open, r.closed = nil, true
	r.mu.Unlock()
	if again {
		return fmt.Errorf("software RNIC: %w", verbs.ErrClosed)
	}
	var errs []error
	for _, o := range slices.Backward(open) {
		errs = append(errs, o.Close())
	}
	return errors.Join(errs...)
}
