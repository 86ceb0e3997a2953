package host

import (
	"context"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Reservations reports who has registered with the namespace, and who holds a reservation (Reservation Report).
func (n *Namespace) Reservations(ctx context.Context) (*nvme.ResvStatus, error) {
	if err := n.supports(nvme.ONCSReservations, nvme.OpResvReport); err != nil {
		return nil, err
	}
	// Most namespaces have few registrants, if any.
	for size := nvme.PageSize; ; {
		b := make([]byte, size)
		var cmd nvme.Command
		cmd.SetResvReport(n.ID, size)
		if err := n.command(ctx, &cmd, b); err != nil {
			return nil, err
		}
		whole := nvme.ResvStatusLength(b)
		if whole <= size {
			p := new(nvme.ResvStatus)
			if err := p.Parse(b); err != nil {
				return nil, err
			}
			return p, nil
		}
		if whole > n.ctrl.limits.MaxTransfer {
			return nil, fmt.Errorf("nvme: %s on namespace %d: %w: %d bytes are more than one command carries",
				nvme.OpResvReport.IOName(), n.ID, ErrRange, whole)
		}
		size = whole
	}
}
