package host

import (
	"context"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Format gives a namespace an LBA format, without metadata, and erases what it holds (Format NVM). A Namespace that was
// opened before doesn't learn of another format: open it again. Since the command takes as long as the namespace is
// large, only ctx limits its time.
func (c *Controller) Format(ctx context.Context, nsid uint32, lbaf int, ses nvme.SecureErase) error {
	r := &Request{unlimited: true}
	r.Cmd.SetFormat(nsid, lbaf, ses)
	if c.identity.OACS&nvme.OACSFormat == 0 {
		return fmt.Errorf("nvme: %s: %w (OACS is %#x)", r.Cmd.Opcode().AdminName(), ErrUnsupported, c.identity.OACS)
	}
	if r.Cmd.FormatLBAF() != lbaf || r.Cmd.FormatSES() != ses {
		return fmt.Errorf("nvme: %s: %w: the command has no LBA format %d, or no way %d to erase", r.Cmd.Opcode().AdminName(), ErrRange, lbaf, ses)
	}
	return c.admin.Do(ctx, r)
}

// Sanitize starts to erase every namespace of the subsystem, or with nvme.SanitizeExitFailure ends the failure mode. The
// Sanitize Status log says how far it is. The other arguments are those of nvme.Command.SetSanitize.
func (c *Controller) Sanitize(ctx context.Context, a nvme.SanitizeAction, flags uint32, passes int, pattern uint32) error {
	var cmd nvme.Command
	cmd.SetSanitize(a, flags, passes, pattern)
	const actions = nvme.SANICAPCrypto | nvme.SANICAPBlock | nvme.SANICAPOverwrite
	if c.identity.SANICAP&actions == 0 {
		return fmt.Errorf("nvme: %s: %w (SANICAP is %#x)", cmd.Opcode().AdminName(), ErrUnsupported, c.identity.SANICAP)
	}
	if cmd.SanitizeAction() != a || a == nvme.SanitizeOverwrite && nvme.SanitizePasses(cmd.CDW10()) != passes {
		return fmt.Errorf("nvme: %s: %w: action %d with flags %#x, %d passes: want a known action and 1 to 16 passes, and neither in the flags",
			cmd.Opcode().AdminName(), ErrRange, a, flags, passes)
	}
	_, err := c.command(ctx, &cmd, nil)
	return err
}
