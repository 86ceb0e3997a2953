package softrnic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Routes connects from whatever address the route to a peer begins at, as rdma_cm does on a host with several devices.
// There is an RNIC for each such address, opened when it is first needed and kept until Close. So a connection that is
// made anew after this host's address has changed comes from the new one.
type Routes struct {
	cfg Config

	mu       sync.Mutex
	closed   bool
	open     []routed
	watchers []func(*RNIC)
}

// routed is an RNIC that is open.
type routed struct {
	nic    *RNIC
	within bool // it was opened for an address of this host
}

var _ verbs.ConnectionManager = (*Routes)(nil)

// NewRoutes opens nothing yet. All RNICs will have the configuration, of which an error says what is wrong.
func NewRoutes(cfg Config) (*Routes, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Routes{cfg: cfg}, nil
}

// Watch tells f of every RNIC: of those that are open at once, of others when they have been opened. f must not call r.
func (r *Routes) Watch(f func(*RNIC)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, f)
	for _, o := range r.open {
		f(o.nic)
	}
}

// Reach gives the RNIC from which dst is reached, with address src where that is valid. Its errors are those
// of Open and OpenFor, and after Close verbs.ErrClosed.
func (r *Routes) Reach(src, dst netip.Addr) (*RNIC, error) {
	src, dst = src.Unmap(), dst.Unmap()
	from := src
	if !src.IsValid() {
		var err error
		if from, err = sourceFor(dst); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("software RNIC: %w", verbs.ErrClosed)
	}
	for _, o := range r.open {
		if o.reaches(dst, from) {
			return o.nic, nil
		}
	}
	var nic *RNIC
	var err error
	if src.IsValid() {
		nic, err = Open(src, r.cfg)
		if err == nil && src == dst { // or its RNIC would be in the way
			err = errors.Join(fmt.Errorf("software RNIC: %w: %s is the destination, too, and nobody's: want another address of this host", ErrConfig, src), nic.Close())
		}
	} else {
		nic, err = openFrom(from, dst, r.cfg)
	}
	if err != nil {
		return nil, err
	}
	r.open = append(r.open, routed{nic, from == dst})
	for _, f := range r.watchers {
		f(nic)
	}
	return nic, nil
}

// reaches tells whether what is to be reached from an address is reached by o. An address of this host is reached from
// any other that was opened for one.
func (o routed) reaches(dst, from netip.Addr) bool {
	addr := o.nic.dev.Attr().Addr
	if from != dst {
		return addr == from
	}
	return o.within && addr != dst && addr.Is4() == dst.Is4()
}

// CreateID makes an identifier that has a device when its address is resolved.
func (r *Routes) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	return &routedID{CMID: &unresolved{}, routes: r, handler: handler}, nil
}

// Close ends every connection and closes every RNIC. The error of a second Close is verbs.ErrClosed.
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
		errs = append(errs, o.nic.Close())
	}
	return errors.Join(errs...)
}
