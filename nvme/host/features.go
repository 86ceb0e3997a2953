package host

import (
	"context"
	"errors"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Feature runs Get Features. data is filled if the feature has any (nvme.FeatureDataSize). It returns dword 0 of
// the completion.
func (c *Controller) Feature(ctx context.Context, f nvme.FID, sel nvme.SEL, nsid, dw11 uint32, data []byte) (uint32, error) {
	var cmd nvme.Command
	cmd.SetGetFeatures(f, sel, nsid, dw11)
	cqe, err := c.command(ctx, &cmd, data)
	return cqe.DW0(), err
}

// SetFeature runs Set Features, without saving. It returns dword 0 of the completion.
func (c *Controller) SetFeature(ctx context.Context, f nvme.FID, nsid, dw11 uint32, data []byte) (uint32, error) {
	var cmd nvme.Command
	cmd.SetSetFeatures(f, false, nsid, dw11)
	cqe, err := c.command(ctx, &cmd, data)
	return cqe.DW0(), err
}

// setTimestamp tells the controller the time, if it wants to know.
func (c *Controller) setTimestamp(ctx context.Context) error {
	if c.identity.ONCS&nvme.ONCSTimestamp == 0 {
		return nil
	}
	return c.tell(ctx, nvme.FeatTimestamp, nvme.TimestampOf(time.Now()).AppendTo(nil))
}

// setBehavior tells a controller with retry delays that this host obeys them (nvme/multipath does): otherwise it
// sends none.
func (c *Controller) setBehavior(ctx context.Context) error {
	if c.identity.CRDT1 == 0 {
		return nil
	}
	return c.tell(ctx, nvme.FeatHostBehavior, nvme.HostBehavior{ACRE: 1}.AppendTo(nil))
}

// tell sets a feature that the controller can do without: a refusal does no harm.
func (c *Controller) tell(ctx context.Context, f nvme.FID, data []byte) error {
	_, err := c.SetFeature(ctx, f, 0, 0, data)
	if refused(err) {
		c.cfg.Log.Debug("feature refused", c.logKeys("feature", f, "err", err)...)
		return nil
	}
	return err
}

// refused reports whether err is a controller's answer, and not the end of the connection.
func refused(err error) bool {
	var status *nvme.StatusError
	return errors.As(err, &status)
}
