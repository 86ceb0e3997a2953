package host

import (
	"context"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

const (
	// maxTransfer bounds one command even if the controller allows more: nvmet refuses SGLs above 4 MiB whatever it
	// advertises.
	maxTransfer = 4 << 20
	// maxNamespaces bounds what a controller can make the host remember: NN goes up to four billion.
	maxNamespaces = 1 << 16
	// maxInCapsule bounds what a queue reserves per entry for in-capsule data.
	maxInCapsule = 64 << 10
)

// identify reads Identify Controller, checks it as Linux does and sets the limits.
func (c *Controller) identify(ctx context.Context) error {
	page, err := c.IdentifyPage(ctx, nvme.CNSController, 0, nvme.CSINVM)
	if err != nil {
		return err
	}
	if err := c.identity.Parse(page); err != nil {
		return err
	}
	if err := c.checkIdentity(); err != nil {
		return err
	}
	c.settleLimits()
	if c.version < nvme.Version1_2_1 || c.withoutIO() {
		return nil
	}
	// Older controllers don't have this page; then no limit is known.
	page, err = c.IdentifyPage(ctx, nvme.CNSCommandSetController, 0, nvme.CSINVM)
	if refused(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.nvm.Parse(page)
}

// checkIdentity rejects a controller that the host can't use. The errors name the field.
func (c *Controller) checkIdentity() error {
	id := &c.identity
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrController, fmt.Sprintf(format, args...))
	}
	switch {
	case id.CNTLID != c.cntlid:
		return bad("CNTLID is %d, but Connect gave %d", id.CNTLID, c.cntlid)
	case id.KAS == 0 && c.cfg.KATO > 0 && !c.discovery():
		return bad("KAS is 0: it has no keep alive, which Fabrics demands")
	}
	if err := c.checkSGLS(bad); err != nil || c.withoutIO() {
		return err
	}
	// The rest is about I/O queues: a controller that has none leaves it zero.
	switch {
	case id.SQES&0xf > 6 || id.SQES>>4 < 6:
		return bad("SQES is %#02x: entries of 64 bytes are not possible", id.SQES)
	case id.CQES&0xf > 4 || id.CQES>>4 < 4:
		return bad("CQES is %#02x: entries of 16 bytes are not possible", id.CQES)
	case id.IOCCSZ < 4:
		return bad("IOCCSZ is %d: a command of 64 bytes doesn't fit", id.IOCCSZ)
	case id.IORCSZ < 1:
		return bad("IORCSZ is %d: a response of 16 bytes doesn't fit", id.IORCSZ)
	case id.ICDOFF != 0:
		return bad("ICDOFF is %d: only 0 is supported", id.ICDOFF)
	}
	return nil
}

// checkSGLS makes sure that the controller supports the descriptors that the transport sends.
func (c *Controller) checkSGLS(bad func(string, ...any) error) error {
	sgls := c.identity.SGLS
	switch c.cfg.Transport.Type() {
	case nvme.TransportRDMA:
		if sgls&nvme.SGLSKeyed == 0 {
			return bad("SGLS is %#x: keyed SGLs, which RDMA needs, are not supported", sgls)
		}
	default:
		if sgls&(nvme.SGLSSupported|nvme.SGLSDwordAligned) == 0 {
			return bad("SGLS is %#x: SGLs are not supported", sgls)
		}
	}
	return nil
}

func (c *Controller) settleLimits() {
	id := &c.identity
	l := &c.limits
	l.KATO = c.cfg.KATO
	l.QueueSize = min(c.cfg.QueueSize, c.cap.MQES())
	if id.MAXCMD != 0 {
		l.QueueSize = min(l.QueueSize, max(int(id.MAXCMD), minQueueSize))
	}
	l.QueueSize = max(l.QueueSize, minQueueSize)
	l.MaxTransfer = maxTransfer
	if n := id.MaxTransfer(); n != 0 {
		l.MaxTransfer = min(l.MaxTransfer, n)
	}
	l.InCapsule = min(id.InCapsule(), maxInCapsule)
	// RDMA may send data in the capsule only if the offset form is supported.
	if c.cfg.Transport.Type() == nvme.TransportRDMA && id.SGLS&nvme.SGLSInCapsuleOffs == 0 {
		l.InCapsule = 0
	}
}

// IdentifyPage reads any Identify page, 4096 bytes.
func (c *Controller) IdentifyPage(ctx context.Context, cns nvme.CNS, nsid uint32, csi nvme.CSI) ([]byte, error) {
	var cmd nvme.Command
	var of uint16
	if cns == nvme.CNSCommandSets {
		of = nvme.CNTLIDDynamic // the controller that executes the command
	}
	cmd.SetIdentify(cns, nsid, of, csi)
	page := make([]byte, nvme.PageSize)
	if _, err := c.command(ctx, &cmd, page); err != nil {
		return nil, err
	}
	return page, nil
}

// ActiveNamespaces returns the NSIDs of the active namespaces, which are those attached to the controller, in
// ascending order.
func (c *Controller) ActiveNamespaces(ctx context.Context) ([]uint32, error) {
	return c.namespaceList(ctx, nvme.CNSActiveNSIDs)
}

// AllocatedNamespaces returns the NSIDs of all namespaces of the subsystem, in ascending order. It needs a
// controller with Namespace Management.
func (c *Controller) AllocatedNamespaces(ctx context.Context) ([]uint32, error) {
	return c.namespaceList(ctx, nvme.CNSAllocatedNSIDs)
}

// hasNamespaces returns an error for a discovery controller, which would answer questions about namespaces with
// Invalid Field.
func (c *Controller) hasNamespaces() error {
	if c.discovery() {
		return fmt.Errorf("nvme: namespaces: %w: subsystem %s is for discovery, and has none", ErrUnsupported, c.cfg.SubNQN)
	}
	return nil
}

func (c *Controller) namespaceList(ctx context.Context, cns nvme.CNS) ([]uint32, error) {
	if err := c.hasNamespaces(); err != nil {
		return nil, err
	}
	var all []uint32
	for after := uint32(0); ; {
		page, err := c.IdentifyPage(ctx, cns, after, nvme.CSINVM)
		if err != nil {
			return nil, err
		}
		l, err := nvme.ParseNSIDList(page)
		if err != nil {
			return nil, err
		}
		for _, id := range l {
			if id <= after {
				return nil, fmt.Errorf("nvme: %w: the namespace list is not ascending at %d", ErrController, id)
			}
			after = id
		}
		all = append(all, l...)
		if len(all) > maxNamespaces {
			return nil, fmt.Errorf("nvme: %w: more than %d namespaces", ErrController, maxNamespaces)
		}
		// A list that isn't full is the last one. NSIDs end before the broadcast value.
		if len(l) < nvme.MaxNSIDList || after >= nvme.NSIDAll-1 {
			return all, nil
		}
	}
}
