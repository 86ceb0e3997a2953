package tcp

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/socket"
	"github.com/nvme-anywhere/nvmeof/internal/busypoll"
)

// fabricsInCapsule is how many bytes of data a capsule may carry on the admin queue, and in a
// Fabrics command on any queue, whatever IOCCSZ says (section 3.4.1).
const fabricsInCapsule = 8192

// Defaults of TargetConfig and HostConfig.
const (
	defaultQueueDepth     = 256
	defaultInCapsule      = 16 << 10
	defaultMaxTransfer    = 1 << 20
	defaultMemory         = 256 << 20 // of a target
	defaultHostMemory     = 1 << 30
	defaultMaxConns       = 1024
	defaultMaxPeerConns   = 256
	defaultConnectTimeout = 10 * time.Second
	defaultDataTimeout    = 30 * time.Second
)

// TargetConfig configures a Listener. The zero value suits Linux hosts.
type TargetConfig struct {
	// QueueDepth is how many commands a connection can hold, 2 to 4096; 0 means 256.
	QueueDepth int
	// InCapsule is the most data that an I/O command capsule may carry, in bytes, a multiple of 16,
	// at most 1 MiB; 0 means 16 KiB, below 0 none.
	InCapsule int
	// MaxTransfer is the most data of one command, in bytes: a power of two times 4096, at most
	// 16 MiB; 0 means 1 MiB.
	MaxTransfer int
	// MaxH2CData is the most data of one H2CData PDU, in bytes: at least 4096, a multiple of 4, at
	// most 16 MiB; 0 means MaxTransfer.
	MaxH2CData int
	// Memory is how much memory commands may hold for data, in bytes, over all connections, at
	// least MaxTransfer; 0 means 256 MiB. Commands wait when it is used up.
	Memory int64
	// PeerMemory is how much of Memory the commands of one address may hold, in bytes; 0 means a
	// quarter. It makes a host that never takes or sends its data hold up only itself.
	PeerMemory int64
	// MaxConns is how many connections may be open; 0 means 1024. Further ones are closed.
	MaxConns int
	// MaxPeerConns is how many of them may be from one address; 0 means 256.
	MaxPeerConns int
	// DataTimeout is how long a host may send none of the data that it was asked for (R2T); 0
	// means 30 s. All the data of one command may take ten times as long.
	DataTimeout time.Duration
	// BusyPoll is the longest that a connection polls for data before it sleeps. It polls only if
	// recent waits were that short, and sleeps at once otherwise. It polls no longer than twice the
	// time that its last turns took, or a fifth of BusyPoll if that is longer, unless polling for
	// all of BusyPoll has turned out to shorten waits. It doesn't poll if sleeping makes waits
	// shorter, while more connections of the program have work than half of the processors, or
	// after a turn of 48 commands or more. Zero means DefaultBusyPoll; NoBusyPoll never polls.
	BusyPoll time.Duration
	// Log receives refusals and failures, at a bounded rate; nil discards them.
	Log *slog.Logger
	// Tap makes the Tap that sees the bytes of a connection; nil for none.
	Tap func(local, remote netip.AddrPort) Tap
	// Network makes the connections; nil means socket.System, the kernel's TCP.
	Network socket.Network
}

// Validate returns an error, of kind ErrConfig, that names the first invalid field of c, or nil.
func (c TargetConfig) Validate() error {
	c.fill()
	switch {
	case c.QueueDepth < 2 || c.QueueDepth > 4096:
		return badConfig("QueueDepth %d is not within 2 to 4096", c.QueueDepth)
	case c.InCapsule > 1<<20 || c.InCapsule%16 != 0:
		return badConfig("InCapsule %d is not a multiple of 16 up to 1 MiB", c.InCapsule)
	case c.MaxTransfer < 4096 || c.MaxTransfer > 16<<20 || c.MaxTransfer&(c.MaxTransfer-1) != 0:
		return badConfig("MaxTransfer %d is not a power of two from 4096 to 16 MiB", c.MaxTransfer)
	case c.MaxH2CData < 4096 || c.MaxH2CData > 16<<20 || c.MaxH2CData%4 != 0:
		return badConfig("MaxH2CData %d is not a multiple of 4 from 4096 to 16 MiB", c.MaxH2CData)
	case c.Memory < int64(c.MaxTransfer):
		return badConfig("Memory %d is less than one transfer of %d bytes", c.Memory, c.MaxTransfer)
	case c.PeerMemory < 0 || c.PeerMemory > c.Memory:
		return badConfig("PeerMemory %d is not within 0 to Memory (%d)", c.PeerMemory, c.Memory)
	case c.MaxConns < 1:
		return badConfig("MaxConns %d is not positive", c.MaxConns)
	case c.MaxPeerConns < 1:
		return badConfig("MaxPeerConns %d is not positive", c.MaxPeerConns)
	case c.DataTimeout < 0:
		return badConfig("DataTimeout %v is negative", c.DataTimeout)
	}
	return validBusyPoll(c.BusyPoll)
}

// fill replaces zero values with the defaults.
func (c *TargetConfig) fill() {
	c.QueueDepth = cmp.Or(c.QueueDepth, defaultQueueDepth)
	c.InCapsule = max(cmp.Or(c.InCapsule, defaultInCapsule), 0)
	c.MaxTransfer = cmp.Or(c.MaxTransfer, defaultMaxTransfer)
	c.MaxH2CData = cmp.Or(c.MaxH2CData, c.MaxTransfer)
	c.Memory = cmp.Or(c.Memory, defaultMemory)
	c.PeerMemory = cmp.Or(c.PeerMemory, c.Memory/4)
	c.MaxConns = cmp.Or(c.MaxConns, defaultMaxConns)
	c.MaxPeerConns = cmp.Or(c.MaxPeerConns, defaultMaxPeerConns)
	c.DataTimeout = cmp.Or(c.DataTimeout, defaultDataTimeout)
	c.Network = cmp.Or(c.Network, socket.System)
}

// HostConfig configures a Transport. The zero value asks for no digests.
type HostConfig struct {
	// HeaderDigest and DataDigest ask the controller for digests. A controller that doesn't grant
	// them is refused.
	HeaderDigest, DataDigest bool
	// ConnectTimeout limits the TCP connection, and then the exchange of ICReq and ICResp; 0
	// means 10 s.
	ConnectTimeout time.Duration
	// BusyPoll is the longest that a connection polls for data before it sleeps, as in TargetConfig.
	BusyPoll time.Duration
	// Memory is the most that Transport.Alloc hands out, in bytes; 0 means 1 GiB.
	Memory int64
	// Tap makes the Tap that sees the bytes of a connection; nil for none.
	Tap func(local, remote netip.AddrPort) Tap
	// Network makes the connections; nil means socket.System, the kernel's TCP.
	Network socket.Network
}

// Validate returns an error, of kind ErrConfig, that names the first invalid field of c, or nil.
func (c HostConfig) Validate() error {
	if c.ConnectTimeout < 0 {
		return badConfig("ConnectTimeout %v is negative", c.ConnectTimeout)
	}
	if c.Memory < 0 {
		return badConfig("Memory %d is negative", c.Memory)
	}
	return validBusyPoll(c.BusyPoll)
}

func validBusyPoll(d time.Duration) error {
	if !busypoll.Valid(d) {
		return badConfig("BusyPoll %v is neither 0 (default), %d (off) nor up to %v", d, NoBusyPoll, busypoll.Max)
	}
	return nil
}

// fill replaces zero values with the defaults.
func (c *HostConfig) fill() {
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, defaultConnectTimeout)
	c.Memory = cmp.Or(c.Memory, defaultHostMemory)
	c.Network = cmp.Or(c.Network, socket.System)
}

// digests returns the digests that c asks for.
func (c HostConfig) digests() pdu.Digests {
	var d pdu.Digests
	if c.HeaderDigest {
		d |= pdu.DigestHeader
	}
	if c.DataDigest {
		d |= pdu.DigestData
	}
	return d
}

// badConfig returns the error for an invalid field.
func badConfig(format string, args ...any) error {
	return fmt.Errorf("nvme/tcp: %w: %s", ErrConfig, fmt.Sprintf(format, args...))
}
