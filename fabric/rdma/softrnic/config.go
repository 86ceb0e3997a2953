package softrnic

import (
	"errors"
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

// Config says how an RNIC is opened. The zero value is good.
type Config struct {
	// Plain sends and receives one datagram a message: no segmentation offload, no
	// coalescing. Slower; for networks or kernels where offloads are broken.
	Plain bool
	// BusyPoll is the longest to look for packets before sleeping; it is no longer than twice what
	// the last batches took, or a fifth of it, unless looking for so long has turned out to shorten
	// waits, and only where the last waits were that short, and sleeping doesn't shorten them. Zero
	// is DefaultBusyPoll, NoBusyPoll is never.
	BusyPoll time.Duration
	// RecvBuffer is the socket's receive buffer in bytes; 0 takes as much as the system gives.
	RecvBuffer int
	// DSCP marks the packets, 0 to 63, of connections for which the peer doesn't ask for another,
	// so that switches put them into a class of their own. All are capable of ECN.
	DSCP uint8
	// Priority is that of the packets within this machine, 1 to 6, which a VLAN interface maps
	// to the link's class (PFC); 0 is what the kernel makes of DSCP.
	Priority int
	// MaxHalfOpen and MaxPeerHalfOpen bound the connections that peers have asked for and not
	// confirmed yet, of all and of one address; 0 is 512 and 64. Beyond that a request is rejected
	// with reason 3 (no resources).
	MaxHalfOpen, MaxPeerHalfOpen int
	// NoLocalICRC leaves the ICRC out of the packets of connections with programs of this kind
	// on this host, by an address of its own, that want the same. Off, and where Fault changes bits,
	// every packet has one.
	NoLocalICRC bool
	// LocalMemory has packets to and from programs of this kind and of the same user on this host,
	// that want the same, go through memory that both share instead of the socket.
	LocalMemory bool
	// Capture writes every packet to a file; nil captures nothing. RNICs of this kind then send data,
	// the response behind it and acknowledgements in packets of their own, which Wireshark knows.
	Capture *Capture
	// Fault injects faults into what is sent and received; nil injects none. A capture has what
	// is on the wire: what is lost on purpose is missing where it was sent.
	Fault *fault.Config
}

// Validate says what is wrong with c. The error names the field and is ErrConfig.
func (c *Config) Validate() error {
	bad := func(err error) error { return fmt.Errorf("software RNIC: %w: %w", ErrConfig, err) }
	switch {
	case c.DSCP > maxDSCP:
		return bad(fmt.Errorf("DSCP %d: want 0 to %d", c.DSCP, maxDSCP))
	case c.MaxHalfOpen < 0 || c.MaxPeerHalfOpen < 0:
		return bad(errors.New("MaxHalfOpen, MaxPeerHalfOpen: want a number, or 0 for the default"))
	}
	if c.Fault != nil {
		if err := c.Fault.Validate(); err != nil {
			return bad(err)
		}
	}
	socket := c.socket()
	if err := socket.Validate(); err != nil {
		return bad(err)
	}
	return nil
}

// device is the configuration of the RNIC on the socket.
func (c *Config) device() roce.Config { return roce.Config{TrafficClass: c.DSCP << 2} }

// socket is the configuration of the socket.
func (c *Config) socket() udp.Config {
	device := c.device()
	return udp.Config{
		DisableSegmentation: c.Plain,
		DisableCoalescing:   c.Plain,
		RecvBuffer:          c.RecvBuffer,
		BusyPoll:            c.BusyPoll,
		TrafficClass:        device.SocketClass(),
		Priority:            c.Priority,
		ShareMemory:         c.LocalMemory,
	}
}

// vendorOptions is what dev's peers of our kind are offered, of which room says what packets get through to them.
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
