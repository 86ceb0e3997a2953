package softrnic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/net/bpf"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Group is the RNICs that share a local address: Config.Engines of them, each with a socket, an engine, a connection
// manager and queue pairs of its own. To peers they are one. The kernel gives each packet to the RNIC of its queue
// pair, and each connection request to any.
type Group struct {
	rnics  []*RNIC
	turn   atomic.Uint32
	closed atomic.Bool
}

var _ verbs.ConnectionManager = (*Group)(nil)

// OpenGroup opens the RNICs of a local address. An error that matches ErrInUse says who has its UDP port.
func OpenGroup(addr netip.Addr, cfg Config) (*Group, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Engines <= 1 {
		nic, err := Open(addr, cfg)
		if err != nil {
			return nil, err
		}
		return &Group{rnics: []*RNIC{nic}}, nil
	}
	return openGroup(addr, cfg, steering(cfg.Engines))
}

// openGroup opens several RNICs, among which the kernel chooses by a program.
func openGroup(addr netip.Addr, cfg Config, steering []bpf.Instruction) (*Group, error) {
	program, err := bpf.Assemble(steering)
	if err != nil {
		return nil, err
	}
	steer, err := steer(cfg.Engines)
	if err != nil {
		return nil, err
	}
	sockets, err := udp.ListenGroup(netip.AddrPortFrom(addr, Port), cfg.socket(), cfg.Engines, program)
	if err != nil {
		return nil, fmt.Errorf("software RNIC: %w", err)
	}
	if f := cfg.Fault; f != nil && f.Seed == 0 {
		one := *f
		one.Seed = rand.Uint64() | 1 // for all, so that Faults tells how to repeat the run
		cfg.Fault = &one
	}
	g := &Group{}
	for i, s := range sockets {
		nic, err := assemble(addr, s, cfg, i)
		if err != nil {
			errs := []error{err, g.Close()}
			for _, s := range sockets[i+1:] {
				errs = append(errs, s.Close())
			}
			return nil, errors.Join(errs...)
		}
		g.rnics = append(g.rnics, nic)
	}
	g.join(steer)
	return g, nil
}

// join makes the RNICs give each other what the kernel gives to the wrong one, and ask each other for connections whose
// peer has restarted.
func (g *Group) join(steer func(packet []byte) int) {
	var devices []*roce.Device
	var managers []*cm.Manager
	for _, nic := range g.rnics {
		devices = append(devices, nic.dev)
		managers = append(managers, nic.manager)
	}
	roce.Join(devices, steer)
	cm.Join(managers)
}

// RNICs returns the RNICs, at least one.
func (g *Group) RNICs() []*RNIC { return slices.Clone(g.rnics) }

// Addr returns the address.
func (g *Group) Addr() netip.Addr { return g.rnics[0].dev.Attr().Addr }

// Offloads describes, for people, how packets travel between the RNICs and the kernel.
func (g *Group) Offloads() string {
	how := g.rnics[0].Offloads()
	if n := len(g.rnics); n > 1 {
		how += fmt.Sprintf(", %d engines", n)
	}
	return how
}

// Faults returns the faults that are injected into the first RNIC, with the configuration of all, or nil if there are
// none.
func (g *Group) Faults() Faults { return g.rnics[0].Faults() }

// each calls f for each RNIC.
func (g *Group) each(f func(*RNIC)) {
	for _, nic := range g.rnics {
		f(nic)
	}
}

// next returns each of the RNICs in turn.
func (g *Group) next() *RNIC {
	return g.rnics[int(g.turn.Add(1)-1)%len(g.rnics)]
}

// CreateID makes an identifier. One that listens does so on all RNICs; one that connects gets one of them.
func (g *Group) CreateID(handler verbs.CMHandler) (verbs.CMID, error) {
	if len(g.rnics) == 1 {
		return g.rnics[0].CreateID(handler)
	}
	if g.closed.Load() {
		return nil, fmt.Errorf("software RNIC: %w", verbs.ErrClosed)
	}
	return newRoutedID(g, handler), nil
}

func (g *Group) from(netip.Addr, netip.Addr) (verbs.ConnectionManager, error) { return g.next(), nil }

// Close ends every connection and frees the port. A second Close returns verbs.ErrClosed.
func (g *Group) Close() error {
	g.closed.Store(true)
	errs := make([]error, len(g.rnics))
	var closing sync.WaitGroup // at once, since each may wait for its peers
	for i, nic := range g.rnics {
		closing.Go(func() { errs[i] = nic.Close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}
