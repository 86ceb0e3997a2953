package host

import (
	"context"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Reservations reports which hosts have registered with the namespace, and which holds a reservation (Reservation
// Report).
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

// ReservationRegister registers this host with the namespace under keys.Other, removes its registration under
// keys.Current, or replaces keys.Current by keys.Other, as a says. With ignoreKey it does so whatever the current
// key is. The registration is the host's, identified by Config.HostID, and outlives the controller; p says whether
// it also survives a power loss.
func (n *Namespace) ReservationRegister(ctx context.Context, a nvme.ResvAction, keys nvme.ResvKeys, ignoreKey bool, p nvme.CPTPL) error {
	var cmd nvme.Command
	cmd.SetResvRegister(n.ID, a, ignoreKey, p)
	return n.reservation(ctx, &cmd, keys.AppendTo(nil))
}

// ReservationAcquire acquires a reservation of type t for this host, which is registered under keys.Current, or
// preempts the registrants under keys.Other and their reservation, as a says.
func (n *Namespace) ReservationAcquire(ctx context.Context, a nvme.ResvAction, t nvme.ResvType, keys nvme.ResvKeys) error {
	var cmd nvme.Command
	cmd.SetResvAcquire(n.ID, a, t)
	return n.reservation(ctx, &cmd, keys.AppendTo(nil))
}

// ReservationRelease releases the reservation of type t that this host holds, or clears all registrations and the
// reservation, as a says. The host is registered under key.
func (n *Namespace) ReservationRelease(ctx context.Context, a nvme.ResvAction, t nvme.ResvType, key uint64) error {
	var cmd nvme.Command
	cmd.SetResvRelease(n.ID, a, t)
	return n.reservation(ctx, &cmd, nvme.ResvKeys{Current: key}.AppendTo(nil)[:nvme.ResvReleaseSize])
}

func (n *Namespace) reservation(ctx context.Context, cmd *nvme.Command, keys []byte) error {
	if err := n.supports(nvme.ONCSReservations, cmd.Opcode()); err != nil {
		return err
	}
	return n.command(ctx, cmd, keys)
}
