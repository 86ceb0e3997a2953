package udp

import (
	"fmt"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/busypoll"
)

// Config says how a Conn is opened. The zero value suits most callers.
type Config struct {
	// DisableSegmentation sends one datagram per message even where the kernel could segment trains (UDP_SEGMENT).
	DisableSegmentation bool
	// DisableCoalescing receives every datagram by itself (no UDP_GRO).
	DisableCoalescing bool
	// RecvBuffer is how many unread bytes the kernel should hold. Zero means DefaultBuffer. Without CAP_NET_ADMIN the
	// kernel grants no more than net.core.rmem_max; Conn.RecvBuffer reports what it granted.
	RecvBuffer int
	// BusyPoll is the longest that Recv polls for datagrams before it sleeps. It polls only if recent waits were that
	// short, and sleeps at once otherwise. It polls no longer than twice the time that the caller has recently worked
	// between two waits, or a fifth of BusyPoll if that is longer. Zero means DefaultBusyPoll; NoBusyPoll never polls.
	BusyPoll time.Duration
	// TrafficClass is the class that most trains carry: each train with another one costs a control message.
	TrafficClass uint8
	// Priority is the priority of the packets within this machine (SO_PRIORITY), 1 to 6, which a VLAN interface maps to
	// a class of the link; 0 leaves it to the kernel, which derives it from the TrafficClass. Trains with another
	// TrafficClass get the kernel's priority.
	Priority int
	// ShareMemory exchanges datagrams with sockets of the same user on this host, if they set it too, through shared
	// memory (package neighbor), as soon as the two have found each other.
	ShareMemory bool
}

// DefaultBuffer is the size in bytes requested for both of the socket's buffers, unless Config.RecvBuffer names another
// for receiving: a few bandwidth-delay products of a fast local network.
const DefaultBuffer = 16 << 20

// Values of Config.BusyPoll.
const (
	DefaultBusyPoll = busypoll.Default
	NoBusyPoll      = busypoll.Off
)

const (
	maxBuffer   = 1 << 30
	maxPriority = 6 // more takes CAP_NET_ADMIN
)

// Validate reports the first field with an invalid value.
func (c *Config) Validate() error {
	switch {
	case c.RecvBuffer < 0 || c.RecvBuffer > maxBuffer:
		return fmt.Errorf("udp: receive buffer of %d bytes: want 0 (default) to %d", c.RecvBuffer, maxBuffer)
	case c.Priority < 0 || c.Priority > maxPriority:
		return fmt.Errorf("udp: priority %d: want 0 (default) to %d", c.Priority, maxPriority)
	case !busypoll.Valid(c.BusyPoll):
		return fmt.Errorf("udp: busy polling for %v: want 0 (default), %d (off) or up to %v", c.BusyPoll, NoBusyPoll, busypoll.Max)
	}
	return nil
}
