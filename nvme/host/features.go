package host

import (
	"context"
	"errors"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Feature runs Get Features. data, where the feature has any (nvme.FeatureDataSize), is filled.
// It returns dword 0 of the completion.
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

// setTimestamp tells the controller the time, where it wants to know. A refusal does no harm.
func (c *Controller) setTimestamp(ctx context.Context) error {
	if c.identity.ONCS&nvme.ONCSTimestamp == 0 {
		return nil
	}
	_, err := c.SetFeature(ctx, nvme.FeatTimestamp, 0, 0, nvme.TimestampOf(time.Now()).AppendTo(nil))
	var status *nvme.StatusError
	if errors.As(err, &status) {
		c.cfg.Log.Debug("timestamp refused", c.logKeys("err", err)...)
		return nil
	}
	return err
}
