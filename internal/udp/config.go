package udp

import (
	"fmt"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/busypoll"
)

// Config says how a Conn is opened. Its zero value is what most want.
type Config struct {
	// DisableSegmentation sends one datagram per message even where the kernel could cut
	// trains (UDP_SEGMENT).
	DisableSegmentation bool
	// DisableCoalescing has every datagram received by itself (no UDP_GRO).
	DisableCoalescing bool
	// RecvBuffer is how many bytes the kernel shall hold unread. Zero asks for
	// DefaultBuffer. Without CAP_NET_ADMIN the kernel grants no more than
	// net.core.rmem_max; Conn.RecvBuffer tells what came of it.
	RecvBuffer int
	// BusyPoll is the longest that Recv looks for datagrams before it sleeps, where the last waits
	// were that short: otherwise it sleeps at once. It looks no longer than twice what the
	// caller has lately worked between two waits, or a fifth of it. Zero is DefaultBusyPoll, NoBusyPoll is
	// never.
	BusyPoll time.Duration
	// TrafficClass is what most trains carry: others cost a control message each.
	TrafficClass uint8
	// Priority is that of the packets within this machine (SO_PRIORITY), 1 to 6, which a VLAN
	// interface maps to a class of the link; 0 is what the kernel makes of the TrafficClass.
	// Trains with another TrafficClass have the kernel's.
	Priority int
	// ShareMemory has datagrams to and from sockets of the same user on this host that have it too go
	// through memory that both share (package neighbor), as soon as they have found each other.
	ShareMemory bool
}

// DefaultBuffer is the size in bytes that is asked for both of the socket's buffers, where Config names no other for
// receiving: a few bandwidth-delay products of a fast local network.
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

// Validate reports the first field that can't be.
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
