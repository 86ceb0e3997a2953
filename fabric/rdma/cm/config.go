package cm

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Config bounds what peers can make a Manager hold. The zero value of a field is its default. A
// request beyond a limit is rejected with reason 3 (no resources).
type Config struct {
	// TrafficClass is what connections made from here ask for, in both directions: a DSCP in the
	// upper six bits; 0 leaves it to each side.
	TrafficClass uint8
	// VendorOptions are what the device can do with the peer at an address, if that is of its
	// vendor, as up to six bits that are the vendor's: what both sides name holds. Nil: nothing. It
	// is called with the Manager's lock held, so it must not call that.
	VendorOptions func(peer netip.Addr) uint32
	// PathMTU is the largest path MTU that packets to the peer at an address have room for on their way.
	// Nil: the port's. It is called as VendorOptions is.
	PathMTU func(peer netip.Addr) verbs.MTU
	// MaxConnections bounds the connections in the table, those in TIMEWAIT included; 65536.
	MaxConnections int
	// MaxPerPeer bounds those of one address among them; 4096.
	MaxPerPeer int
	// MaxHalfOpen bounds the passive connections that are not confirmed by their peer yet, over
	// all listeners; 512. One is given up after 20 s, or before, where there is no place for one of an
	// address that has fewer: the oldest of the address that has most.
	MaxHalfOpen int
	// MaxHalfOpenPerPeer bounds those of one address among them; 256, so that a host may ask for as many queues at
	// once as a target lets it have.
	MaxHalfOpenPerPeer int
}

// Validate says what is wrong with c.
func (c Config) Validate() error {
	if c.MaxConnections < 0 || c.MaxPerPeer < 0 || c.MaxHalfOpen < 0 || c.MaxHalfOpenPerPeer < 0 {
		return fmt.Errorf("rdma-cm: negative limit among %d, %d, %d, %d: %w",
			c.MaxConnections, c.MaxPerPeer, c.MaxHalfOpen, c.MaxHalfOpenPerPeer, verbs.ErrInvalid)
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

// defaultBacklog is that of a Listen with backlog 0.
const defaultBacklog = 128
