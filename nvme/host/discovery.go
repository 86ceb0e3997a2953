package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

const (
	// discoveryTries is how often to read a discovery log that keeps changing.
	discoveryTries = 10
	// maxDiscoveryEntries bounds what a target can make this host read: 16 MiB.
	maxDiscoveryEntries = 16384
)

// DiscoveryLog is the complete log of a discovery controller.
type DiscoveryLog struct {
	Generation uint64 // GENCTR
	Entries    []nvme.DiscoveryEntry
}

// ErrDiscoveryUnstable is the cause if the log changed each time it was read.
var ErrDiscoveryUnstable = errors.New("the discovery log keeps changing")

// Discover connects to the discovery controller that cfg describes, reads its log and closes the connection, in an
// orderly way unless ctx ends first. An empty SubNQN means nvme.DiscoveryNQN. It asks for no keep alive, whatever
// cfg.KATO is.
func Discover(ctx context.Context, cfg Config) (*DiscoveryLog, error) {
	cfg.SubNQN = cmp.Or(cfg.SubNQN, nvme.DiscoveryNQN)
	// A keep alive timeout would ask for a persistent connection, which a discovery controller may refuse.
	cfg.KATO = -1
	c, err := Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l, err := c.Discovery(ctx)
	if cerr := c.Shutdown(ctx); err == nil && cerr != nil {
		c.cfg.Log.Debug("discovery controller not shut down orderly", c.logKeys("err", cerr)...)
	}
	return l, err
}

// Discovery reads the discovery log. It reads the header again after the entries, and starts over if GENCTR has
// changed in the meantime. If the log has become shorter, its former end is refused: that is such a change, too.
func (c *Controller) Discovery(ctx context.Context) (*DiscoveryLog, error) {
	for range discoveryTries {
		h, err := c.discoveryHeader(ctx, true)
		if err != nil {
			return nil, err
		}
		if h.NUMREC > maxDiscoveryEntries {
			return nil, fmt.Errorf("nvme: discovery log: %w: NUMREC is %d, at most %d are read", ErrController, h.NUMREC, maxDiscoveryEntries)
		}
		l := &DiscoveryLog{Generation: h.GENCTR}
		var beyond error
		if l.Entries, beyond = c.discoveryEntries(ctx, int(h.NUMREC)); beyond != nil && !refused(beyond) {
			return nil, beyond
		}
		again, err := c.discoveryHeader(ctx, false)
		switch {
		case err != nil:
			return nil, err
		case *again != *h:
		case beyond != nil:
			return nil, beyond
		default:
			return l, nil
		}
	}
	return nil, fmt.Errorf("nvme: discovery log: %w: GENCTR changed %d times", ErrDiscoveryUnstable, discoveryTries)
}

func (c *Controller) discoveryHeader(ctx context.Context, retain bool) (*nvme.DiscoveryHeader, error) {
	b := make([]byte, nvme.DiscoveryHeaderSize)
	if err := c.ReadLog(ctx, nvme.GetLogPage{LID: nvme.LogDiscovery, RAE: retain}, b); err != nil {
		return nil, err
	}
	h := new(nvme.DiscoveryHeader)
	if err := h.Parse(b); err != nil {
		return nil, err
	}
	if h.RECFMT != 0 {
		return nil, fmt.Errorf("nvme: discovery log: %w: RECFMT is %d, only 0 is known", ErrController, h.RECFMT)
	}
	return h, nil
}

func (c *Controller) discoveryEntries(ctx context.Context, n int) ([]nvme.DiscoveryEntry, error) {
	b := make([]byte, n*nvme.DiscoveryEntrySize)
	p := nvme.GetLogPage{LID: nvme.LogDiscovery, RAE: true, Offset: nvme.DiscoveryHeaderSize}
	if err := c.ReadLog(ctx, p, b); err != nil {
		return nil, err
	}
	entries := make([]nvme.DiscoveryEntry, n)
	for i := range entries {
		if err := entries[i].Parse(b[i*nvme.DiscoveryEntrySize:]); err != nil {
			return nil, err
		}
	}
	return entries, nil
}
