package host

import (
	"context"
	"fmt"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// CreateNamespace creates a namespace as spec says, and returns its NSID (Namespace Management). The namespace
// isn't attached to any controller, including this one: see AttachNamespace.
func (c *Controller) CreateNamespace(ctx context.Context, spec *nvme.NamespaceSpec) (nsid uint32, err error) {
	var cmd nvme.Command
	cmd.SetNSCreate(nvme.CSINVM)
	if err := c.manages(&cmd); err != nil {
		return 0, err
	}
	cqe, err := c.command(ctx, &cmd, spec.AppendTo(nil))
	return cqe.DW0(), err
}

// DeleteNamespace deletes a namespace, or all of them if nsid is nvme.NSIDAll.
func (c *Controller) DeleteNamespace(ctx context.Context, nsid uint32) error {
	var cmd nvme.Command
	cmd.SetNSDelete(nsid)
	if err := c.manages(&cmd); err != nil {
		return err
	}
	_, err := c.command(ctx, &cmd, nil)
	return err
}

// AttachNamespace attaches a namespace to controllers of the subsystem, or to this one if none is named, so that it
// is active there (Namespace Attachment). If a target creates a controller per connection, it decides how long the
// attachment lasts: ours keeps it for the host.
func (c *Controller) AttachNamespace(ctx context.Context, nsid uint32, cntlids ...uint16) error {
	return c.attachment(ctx, nsid, nvme.NSAttach, cntlids)
}

// DetachNamespace undoes AttachNamespace.
func (c *Controller) DetachNamespace(ctx context.Context, nsid uint32, cntlids ...uint16) error {
	return c.attachment(ctx, nsid, nvme.NSDetach, cntlids)
}

func (c *Controller) attachment(ctx context.Context, nsid uint32, a nvme.NSAction, cntlids []uint16) error {
	var cmd nvme.Command
	cmd.SetNSAttachment(nsid, a)
	if err := c.manages(&cmd); err != nil {
		return err
	}
	cntlids = slices.Compact(slices.Sorted(slices.Values(cntlids))) // ascending, as every Controller List
	switch n := len(cntlids); {
	case n == 0:
		cntlids = []uint16{c.cntlid}
	case n > nvme.MaxControllerList:
		return fmt.Errorf("nvme: Namespace Attachment: %w: %d controllers, at most %d fit", ErrRange, n, nvme.MaxControllerList)
	}
	_, err := c.command(ctx, &cmd, nvme.ControllerList(cntlids).AppendTo(nil))
	return err
}

func (c *Controller) manages(cmd *nvme.Command) error {
	if c.identity.OACS&nvme.OACSNSManagement == 0 {
		return fmt.Errorf("nvme: %s: %w (OACS is %#x)", cmd.Opcode().AdminName(), ErrUnsupported, c.identity.OACS)
	}
	return nil
}
