package roce

import (
	"cmp"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// Config configures a device. The zero value suits most.
type Config struct {
	// TrafficClass has in its upper six bits the DSCP of management datagrams, and of packets of connections whose peer
	// doesn't ask for another one. The lower two bits are for ECN, and every packet is ECN-capable.
	TrafficClass uint8
	// Engines is how many devices share the address, at most MaxEngines, and Engine is which of them this one is, from
	// 0; an Engines of 0 means that there is only this one.
	Engines, Engine int

	// maxWindow bounds the bytes of requests that may be in flight to one peer without its acknowledgement, and the
	// bytes of READs that may be outstanding in total. It is defaultMaxWindow except in tests. The window to a peer
	// starts at 64 KiB and grows up to this limit.
	maxWindow int
}

// defaultMaxWindow covers a bandwidth-delay product of 80 Gb/s and 100 µs, in bytes.
const defaultMaxWindow = 1 << 20

const (
	minWindow     = 8 << 10
	initialWindow = 64 << 10 // fits the default receive buffer of Linux, 208 KiB with overhead
)

// Validate returns an error if there is no such Engine.
func (c *Config) Validate() error {
	if c.Engines < 0 || c.Engines > MaxEngines || c.Engine < 0 || c.Engine >= max(c.Engines, 1) {
		return fmt.Errorf("roce: engine %d of %d: want one of at most %d: %w", c.Engine, c.Engines, MaxEngines, verbs.ErrInvalid)
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.maxWindow = cmp.Or(c.maxWindow, defaultMaxWindow)
	return c
}

// Limits of every device.
const (
	qpIndexBits = 14
	maxQP       = 1<<qpIndexBits - 2
	maxQPWR     = 1 << 15
	maxSGE      = 32
	maxCQE      = 1 << 20
	maxRdAtomic = 128
	maxInline   = 256
	ackDelay    = 15 // 134 ms: a handler may run before the acknowledgement is sent
)

// packetOverhead is the most that IP, UDP and RoCE add to a payload, rounded up as RDMA-CM does: an interface with an
// MTU of 1500 bytes supports path MTU 1024.
const packetOverhead = 96

// fitMTU returns the largest path MTU up to limit whose packets fit the interface's MTU.
func fitMTU(limit verbs.MTU, interfaceMTU int) (verbs.MTU, error) {
	for m := limit; m >= verbs.MTU256; m-- {
		if m.Bytes()+packetOverhead <= interfaceMTU {
			return m, nil
		}
	}
	return 0, fmt.Errorf("roce: %w: the interface carries packets of %d bytes: raise its MTU to at least %d, or use NVMe/TCP",
		verbs.ErrUnsupported, interfaceMTU, verbs.MTU256.Bytes()+packetOverhead)
}
