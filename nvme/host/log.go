package host

import (
	"context"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// logChunk is how much of a log page one command reads: what every controller allows.
const logChunk = nvme.PageSize

// ReadLog fills b with the log page that p names, from p.Offset; p.Length is not used. A page
// longer than 4096 bytes is read in pieces where the controller can (LPA bit 2), else by one
// command. The asynchronous event that belongs to the page is retained until the last piece,
// and then too where p.RAE is set.
func (c *Controller) ReadLog(ctx context.Context, p nvme.GetLogPage, b []byte) error {
	if len(b)%4 != 0 || p.Offset%4 != 0 {
		return fmt.Errorf("nvme: %s: %w: offset %d and length %d must be multiples of 4", p.LID, ErrRange, p.Offset, len(b))
	}
	chunk := logChunk
	if c.identity.LPA&nvme.LPAExtendedData == 0 && !c.discovery() {
		chunk = c.limits.MaxTransfer
		if len(b) > chunk {
			return fmt.Errorf("nvme: %s of %d bytes: %w: it reads at most %d", p.LID, len(b), ErrUnsupported, chunk)
		}
	}
	retain := p.RAE
	for len(b) > 0 {
		n := min(len(b), chunk)
		p.Length = uint32(n)
		p.RAE = retain || n < len(b)
		var cmd nvme.Command
		cmd.SetGetLogPage(p)
		if _, err := c.command(ctx, &cmd, b[:n]); err != nil {
			return err
		}
		b = b[n:]
		p.Offset += uint64(n)
	}
	return nil
}

// SMART reads the SMART / Health Information log of the controller.
func (c *Controller) SMART(ctx context.Context) (*nvme.SMARTLog, error) {
	b := make([]byte, nvme.SMARTLogSize)
	if err := c.ReadLog(ctx, nvme.GetLogPage{LID: nvme.LogSMART, NSID: nvme.NSIDAll}, b); err != nil {
		return nil, err
	}
	p := new(nvme.SMARTLog)
	if err := p.Parse(b); err != nil {
		return nil, err
	}
	return p, nil
}

// ANA reads the Asymmetric Namespace Access log. It retains the event.
func (c *Controller) ANA(ctx context.Context) (*nvme.ANALog, error) {
	id := &c.identity
	if id.CMIC&nvme.CMICANA == 0 {
		return nil, fmt.Errorf("nvme: %s: %w (CMIC bit 3)", nvme.LogANA, ErrUnsupported)
	}
	n := id.MNAN
	if n == 0 {
		n = id.NN
	}
	size := nvme.ANALogSize(id.NANAGRPID, n)
	const most = 16 << 20
	if size > most {
		return nil, fmt.Errorf("nvme: %s: %w: NANAGRPID %d and %d namespaces make %d bytes", nvme.LogANA, ErrController, id.NANAGRPID, n, size)
	}
	b := make([]byte, size)
	if err := c.ReadLog(ctx, nvme.GetLogPage{LID: nvme.LogANA, RAE: true}, b); err != nil {
		return nil, err
	}
	p := new(nvme.ANALog)
	if err := p.Parse(b); err != nil {
		return nil, err
	}
	return p, nil
}
