package cm

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Config limits what peers can make a Manager hold. A zero field means its default. A request beyond a limit is
// rejected with reason 3 (no resources).
type Config struct {
	// TrafficClass is requested for connections made from here, in both directions: a DSCP in the upper six bits; 0
	// leaves it to each side.
	TrafficClass uint8
	// VendorOptions returns what the device can do with the peer at an address, if that is a device of the same vendor,
	// as up to six bits defined by the vendor: the options that both sides name are used. Nil means none. It is called
	// with the Manager's lock held, so it must not call the Manager.
	VendorOptions func(peer netip.Addr) uint32
	// PathMTU returns the largest path MTU of the path to the peer at an address. Nil means the port's. It is called
	// like VendorOptions.
	PathMTU func(peer netip.Addr) verbs.MTU
	// MaxConnections limits the connections in the table, including those in TIMEWAIT; 0 means 65536.
	MaxConnections int
	// MaxPerPeer limits those of one address; 0 means 4096.
	MaxPerPeer int
	// MaxHalfOpen limits the passive connections that are not confirmed by their peer yet, over all listeners; 0 means
	// 512. One is given up after 20 s, or earlier if there is no place for a connection of an address that has fewer:
	// then the oldest of the address that has the most gives way.
	MaxHalfOpen int
	// MaxHalfOpenPerPeer limits those of one address; 0 means 256, so that a host may ask for as many queues at once as
	// a target allows it to have.
	MaxHalfOpenPerPeer int
	// Engines is how many Managers share the address, at most MaxEngines, and Engine is which of them this one is, from
	// 0; an Engines of 0 means that there is only this one. The limits are each Manager's own.
	Engines, Engine int
}

// Validate returns an error if a limit is negative, or if there is no such Engine.
func (c Config) Validate() error {
	if c.MaxConnections < 0 || c.MaxPerPeer < 0 || c.MaxHalfOpen < 0 || c.MaxHalfOpenPerPeer < 0 {
		return fmt.Errorf("rdma-cm: negative limit among %d, %d, %d, %d: %w",
			c.MaxConnections, c.MaxPerPeer, c.MaxHalfOpen, c.MaxHalfOpenPerPeer, verbs.ErrInvalid)
	}
	if c.Engines < 0 || c.Engines > MaxEngines || c.Engine < 0 || c.Engine >= max(c.Engines, 1) {
		return fmt.Errorf("rdma-cm: engine %d of %d: want one of at most %d: %w", c.Engine, c.Engines, MaxEngines, verbs.ErrInvalid)
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.MaxConnections = cmp.Or(c.MaxConnections, 65536)
	c.MaxPerPeer = cmp.Or(c.MaxPerPeer, 4096)
	c.MaxHalfOpen = cmp.Or(c.MaxHalfOpen, 512)
	c.MaxHalfOpenPerPeer = cmp.Or(c.MaxHalfOpenPerPeer, 256)
	return c
}

// defaultBacklog is the backlog of a Listen with backlog 0.
const defaultBacklog = 128
