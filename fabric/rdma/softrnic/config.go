package softrnic

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/fault"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Values of Config.BusyPoll.
const (
	DefaultBusyPoll = udp.DefaultBusyPoll
	NoBusyPoll      = udp.NoBusyPoll
)

const maxDSCP = 63

// MaxEngines is the largest Config.Engines.
const MaxEngines = roce.MaxEngines

// Config says how an RNIC is opened. The zero value is ready to use.
type Config struct {
	// Plain sends and receives one datagram per message: no segmentation offload, no coalescing. It is slower; use it
	// for networks or kernels where offloads are broken.
	Plain bool
	// BusyPoll is the longest time to poll for packets before sleeping. Packets are polled for only if recent waits
	// were that short and sleeping doesn't shorten them, and for no longer than twice what recent batches took, or a
	// fifth of BusyPoll if that is longer, unless polling for all of it has turned out to shorten waits. Zero means
	// DefaultBusyPoll; NoBusyPoll never polls.
	BusyPoll time.Duration
	// DSCP marks the packets, 0 to 63, of connections for which the peer doesn't ask for another value, so that
	// switches put them in a class of their own. All packets are marked as ECN-capable.
	DSCP uint8
	// Priority is the priority of the packets within this machine, 1 to 6, which a VLAN interface maps to the link's
	// class (PFC); 0 leaves it to the kernel, which derives it from DSCP.
	Priority int
	// MaxHalfOpen and MaxPeerHalfOpen bound the connections that peers have requested but not yet confirmed, in total
	// and from one address; 0 means 512 and 256. Requests beyond that are rejected with reason 3 (no resources).
	MaxHalfOpen, MaxPeerHalfOpen int
	// NoLocalICRC leaves out the ICRC in packets of connections with programs of this kind that have an address of this
	// host and set it too. Without it, and if Fault changes bits, every packet has one.
	NoLocalICRC bool
	// LocalMemory exchanges packets with programs of this kind and of the same user on this host that set it too
	// through shared memory instead of the socket.
	LocalMemory bool
	// Engines is how many RNICs OpenGroup and Routes open at an address, at most MaxEngines; 0 means 1. Connections are
	// spread over them, so that several processors can work for one address. It excludes LocalMemory. Limits and
	// buffers are those of each RNIC.
	Engines int
	// Capture writes every packet to a file; nil captures nothing. The RNIC then sends data, the response that follows
	// it and acknowledgements in separate packets, which Wireshark can dissect.
	Capture *Capture
	// Fault injects faults into what is sent and received; nil injects none. A capture shows what is on the wire:
	// packets lost on purpose when sending are missing.
	Fault *fault.Config
}

// Validate says what is wrong with c. The error names the field and matches ErrConfig.
func (c *Config) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("software RNIC: %w: %w", ErrConfig, fmt.Errorf(format, args...))
	}
	switch {
	case c.DSCP > maxDSCP:
		return bad("DSCP %d: want 0 to %d", c.DSCP, maxDSCP)
	case c.MaxHalfOpen < 0 || c.MaxPeerHalfOpen < 0:
		return bad("MaxHalfOpen %d, MaxPeerHalfOpen %d: want a number, or 0 for the default", c.MaxHalfOpen, c.MaxPeerHalfOpen)
	case c.Engines < 0 || c.Engines > MaxEngines:
		return bad("Engines %d: want 0 (default) to %d", c.Engines, MaxEngines)
	case c.Engines > 1 && c.LocalMemory:
		return bad("Engines %d and LocalMemory: want one of them: memory is shared with one engine at an address", c.Engines)
	}
	if c.Fault != nil {
		if err := c.Fault.Validate(); err != nil {
			return bad("%w", err)
		}
	}
	socket := c.socket()
	if err := socket.Validate(); err != nil {
		return bad("%w", err)
	}
	return nil
}

// device returns the configuration of the RNIC on the socket.
func (c *Config) device() roce.Config {
	return roce.Config{TrafficClass: c.DSCP << 2, Engines: c.Engines}
}

// socket returns the configuration of the socket.
func (c *Config) socket() udp.Config {
	device := c.device()
	return udp.Config{
		DisableSegmentation: c.Plain,
		DisableCoalescing:   c.Plain,
		BusyPoll:            c.BusyPoll,
		TrafficClass:        device.SocketClass(),
		Priority:            c.Priority,
		ShareMemory:         c.LocalMemory,
	}
}

// vendorOptions returns the options that dev offers to a peer of our kind; room returns the largest packet that reaches
// it.
func (c *Config) vendorOptions(dev *roce.Device, room func(netip.Addr) int) func(netip.Addr) uint32 {
	never := uint32(0)
	if c.Capture != nil {
		never = roce.OptionWriteSend | roce.OptionAckAlong
	}
	noICRC := c.NoLocalICRC && (c.Fault == nil || c.Fault.Corrupt == 0)
	return func(peer netip.Addr) uint32 {
		options := dev.VendorOptionsWithin(room(peer)) &^ never
		if noICRC && udp.OnThisHost(peer) {
			options |= roce.OptionNoICRC
		}
		return options
	}
}
