package host

import (
	"context"
	"fmt"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// enable reads the capabilities and sets CC.EN, as section "Controller initialization" of the specification says.
func (c *Controller) enable(ctx context.Context) error {
	v, err := c.Property(ctx, nvme.PropCAP)
	if err != nil {
		return err
	}
	c.cap = nvme.CAP(v)
	if size := c.cap.MPSMIN(); size != 0 {
		return fmt.Errorf("%w: CAP.MPSMIN is %d: pages of 4096 bytes are not supported", ErrController, size)
	}
	cc := nvme.CCFabrics | c.commandSets()
	// A controller that a dead host left enabled must be disabled before it can be configured.
	if err := c.configure(ctx, cc, func(s nvme.CSTS) bool { return !s.Ready() }); err != nil {
		return fmt.Errorf("CC.EN=0: %w", err)
	}
	if err := c.configure(ctx, cc|nvme.CCEnable, nvme.CSTS.Ready); err != nil {
		return fmt.Errorf("CC.EN=1: %w", err)
	}
	v, err = c.Property(ctx, nvme.PropVS)
	c.version = nvme.Version(v)
	return err
}

// commandSets returns CC.CSS, which CAP.CSS decides.
func (c *Controller) commandSets() nvme.CC {
	switch {
	case c.cap&nvme.CAPIOCS != 0:
		return nvme.CCCSSAll
	case c.cap&(nvme.CAPNVM|nvme.CAPNoIO) == nvme.CAPNoIO:
		return nvme.CCCSSNone
	}
	return nvme.CCCSSNVM
}

// configure writes CC and waits for CSTS to follow within CAP.TO.
func (c *Controller) configure(ctx context.Context, cc nvme.CC, reached func(nvme.CSTS) bool) error {
	if err := c.setProperty(ctx, nvme.PropCC, uint64(cc)); err != nil {
		return err
	}
	// Half a second beyond TO, as Linux grants: TO counts from when the controller saw CC.
	return c.waitCSTS(ctx, c.cap.Timeout()+500*time.Millisecond, reached)
}

// waitCSTS polls CSTS, at growing intervals, until reached returns true.
func (c *Controller) waitCSTS(ctx context.Context, limit time.Duration, reached func(nvme.CSTS) bool) error {
	start := time.Now()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		v, err := c.property(ctx, urgent{c.admin}, nvme.PropCSTS)
		if err != nil {
			return err
		}
		s := nvme.CSTS(v)
		switch {
		case s == nvme.CSTSGone:
			return fmt.Errorf("%w: CSTS reads as all ones", ErrLost)
		case reached(s):
			return nil
		case s.Fatal():
			return ErrFatal
		case time.Since(start) >= limit:
			return fmt.Errorf("%w: CSTS is still %#x after %v (CAP.TO): see whether a volume of the target hangs", ErrTimeout, uint32(s), limit)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		case <-c.done: // the next Property Get reports it, unless it was because of ctx
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("CSTS is still %#x: %w", uint32(s), err)
		}
	}
}

// Property reads a property.
func (c *Controller) Property(ctx context.Context, p nvme.Property) (uint64, error) {
	return c.property(ctx, c.admin, p)
}

// property is Property by way of s.
func (c *Controller) property(ctx context.Context, s sender, p nvme.Property) (uint64, error) {
	var cmd nvme.Command
	cmd.SetPropertyGet(p)
	cqe, err := command(ctx, s, c, 0, &cmd, nil)
	if err != nil {
		return 0, err
	}
	if p.Size() == 4 {
		return uint64(cqe.DW0()), nil
	}
	return cqe.Result(), nil
}

// setProperty writes a property, without waiting for a free entry behind other commands.
func (c *Controller) setProperty(ctx context.Context, p nvme.Property, v uint64) error {
	var cmd nvme.Command
	cmd.SetPropertySet(p, v)
	_, err := command(ctx, urgent{c.admin}, c, 0, &cmd, nil)
	return err
}

// Ping measures the round-trip time of a command that needs no work by the controller (Property Get of VS on the
// admin queue).
func (c *Controller) Ping(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	_, err := c.Property(ctx, nvme.PropVS)
	return time.Since(start), err
}
