package host

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// NamespaceInfo is what a controller says of an active namespace, which need not be one that this host can use.
type NamespaceInfo struct {
	ID          uint32
	Identity    nvme.IdentifyNamespace
	Descriptors nvme.NSDescriptors // identifiers; zero if the controller gives none
}

// Namespace is one active namespace of a controller, as it was when it was opened. All methods may be called from
// any goroutine. Ranges are in bytes, and must consist of whole blocks inside the namespace; otherwise the error
// matches ErrRange.
type Namespace struct {
	NamespaceInfo

	ctrl      *Controller // the one it was opened on
	carrier   Carrier     // takes its commands
	blockSize int
	blocks    uint64
	maxBlocks uint32 // that one command with data transfers
}

// Carrier takes the commands of a Namespace to a controller: through the queues of the controller that the
// namespace was opened on, or through whatever replaces them (see Namespace.Over).
type Carrier interface {
	// SubmitOne sends r, which ends with a call of Done, as with Queue.SubmitOne.
	SubmitOne(r *Request)
	// Cancel makes r end, as Queue.Cancel does.
	Cancel(r *Request, last bool)
	// Alloc returns memory that transfers at the least cost, and Free releases it.
	Alloc(n int) ([]byte, error)
	Free(b []byte)
}

// Over returns a namespace with the same properties whose commands c carries. A command transfers no more than most
// bytes, or one block if that is more, and no more than n's controller allows; what is supported is also still that of
// n's controller.
func (n *Namespace) Over(c Carrier, most int) *Namespace {
	over := *n
	over.carrier = c
	over.maxBlocks = uint32(min(int(n.maxBlocks), max(most/n.blockSize, 1)))
	return &over
}

// inTurns is the Carrier of a single controller: it uses the I/O queues in turn.
type inTurns struct {
	*Controller
	next atomic.Uint32
}

// SubmitOne implements Carrier.
func (t *inTurns) SubmitOne(r *Request) {
	t.io[int(t.next.Add(1)-1)%len(t.io)].SubmitOne(r)
}

// Cancel implements Carrier.
func (t *inTurns) Cancel(r *Request, last bool) {
	for _, q := range t.io {
		q.Cancel(r, last)
	}
}

// Namespace opens the namespace nsid: it reads Identify Namespace and the namespace's identifiers. If the host can't use
// such a namespace, the error matches ErrNamespace. A controller without I/O queues opens none: the error matches
// ErrUnsupported.
func (c *Controller) Namespace(ctx context.Context, nsid uint32) (*Namespace, error) {
	info, err := c.NamespaceInfo(ctx, nsid)
	if err != nil {
		return nil, err
	}
	if len(c.io) == 0 {
		return nil, fmt.Errorf("nvme: namespace %d: %w: the controller has no I/O queues", nsid, ErrUnsupported)
	}
	n := &Namespace{NamespaceInfo: *info, ctrl: c, carrier: &inTurns{Controller: c}}
	if err := n.settle(); err != nil {
		return nil, err
	}
	return n, nil
}

// NamespaceInfo reads what the controller says of the namespace nsid, as Namespace does, and opens nothing.
func (c *Controller) NamespaceInfo(ctx context.Context, nsid uint32) (*NamespaceInfo, error) {
	if nsid == nvme.NSIDNone || nsid == nvme.NSIDAll {
		return nil, fmt.Errorf("nvme: namespace %d: %w", nsid, nvme.StatusInvalidNamespace)
	}
	if err := c.hasNamespaces(); err != nil {
		return nil, err
	}
	info := &NamespaceInfo{ID: nsid}
	page, err := c.IdentifyPage(ctx, nvme.CNSNamespace, nsid, nvme.CSINVM)
	if err != nil {
		return nil, err
	}
	if err := info.Identity.Parse(page); err != nil {
		return nil, err
	}
	if info.Identity.NCAP == 0 {
		return nil, fmt.Errorf("nvme: namespace %d is not active: %w", nsid, nvme.StatusInvalidNamespace)
	}
	if err := info.readDescriptors(ctx, c); err != nil {
		return nil, err
	}
	return info, nil
}

// Namespaces opens every active namespace, in the order of their NSIDs. A namespace that disappeared in the
// meantime is left out. So is one that can't be used: then the error says why, and the usable ones are still
// returned. The result is nil if nothing is known of the namespaces.
func (c *Controller) Namespaces(ctx context.Context) ([]*Namespace, error) {
	ids, err := c.ActiveNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]*Namespace, 0, len(ids))
	var errs []error
	for _, id := range ids {
		n, err := c.Namespace(ctx, id)
		switch {
		case err == nil:
			all = append(all, n)
		case errors.Is(err, nvme.StatusInvalidNamespace):
		case ctx.Err() != nil || c.Err() != nil:
			return nil, err
		default:
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

func (i *NamespaceInfo) readDescriptors(ctx context.Context, c *Controller) error {
	if c.version < nvme.Version1_3 {
		i.Descriptors.EUI64, i.Descriptors.NGUID = i.Identity.EUI64, i.Identity.NGUID
		return nil
	}
	page, err := c.IdentifyPage(ctx, nvme.CNSDescriptors, i.ID, nvme.CSINVM)
	if err != nil {
		return err
	}
	return i.Descriptors.Parse(page)
}

// settle checks the geometry and derives the limits from it.
func (n *Namespace) settle() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("nvme: namespace %d: %w: %s", n.ID, ErrNamespace, fmt.Sprintf(format, args...))
	}
	n.blockSize, n.blocks = n.Identity.BlockSize(), n.Identity.NSZE
	switch {
	case n.Descriptors.HasCSI && n.Descriptors.CSI != nvme.CSINVM:
		return bad("command set %d is not the NVM command set", n.Descriptors.CSI)
	case n.blockSize == 0:
		return bad("LBADS is %d in format %d", n.Identity.LBAF[n.Identity.Format()].LBADS, n.Identity.Format())
	case n.Identity.MetadataSize() != 0:
		return bad("format %d has %d bytes of metadata per block", n.Identity.Format(), n.Identity.MetadataSize())
	case n.blockSize > n.ctrl.limits.MaxTransfer:
		return bad("a block of %d bytes is more than one command moves (%d, by MDTS)", n.blockSize, n.ctrl.limits.MaxTransfer)
	case n.blocks > (1<<63-1)/uint64(n.blockSize):
		return bad("NSZE is %d blocks of %d bytes", n.blocks, n.blockSize)
	}
	n.maxBlocks = uint32(min(n.ctrl.limits.MaxTransfer/n.blockSize, nvme.MaxBlocks))
	return nil
}

// Controller returns the controller that the namespace was opened on, even if another Carrier takes its commands.
func (n *Namespace) Controller() *Controller { return n.ctrl }

// BlockSize is the size of a logical block in bytes.
func (n *Namespace) BlockSize() int { return n.blockSize }

// Blocks is the size of the namespace in blocks.
func (n *Namespace) Blocks() uint64 { return n.blocks }

// Size is the size of the namespace in bytes.
func (n *Namespace) Size() int64 { return int64(n.blocks) * int64(n.blockSize) }

// MaxTransfer is the most bytes that one Read or Write transfers.
func (n *Namespace) MaxTransfer() int { return int(n.maxBlocks) * n.blockSize }

// check makes sure that a range consists of whole blocks inside the namespace.
func (n *Namespace) check(off, length int64) error {
	bs := int64(n.blockSize)
	switch {
	case off < 0 || length < 0:
		return fmt.Errorf("nvme: namespace %d: %w: neither offset %d nor length %d may be negative", n.ID, ErrRange, off, length)
	case off%bs != 0 || length%bs != 0:
		return fmt.Errorf("nvme: namespace %d: %w: offset %d and length %d must be multiples of the block size, %d", n.ID, ErrRange, off, length, bs)
	case off > n.Size() || length > n.Size()-off:
		return fmt.Errorf("nvme: namespace %d: %w: %d bytes at %d reach beyond its end at %d", n.ID, ErrRange, length, off, n.Size())
	}
	return nil
}
