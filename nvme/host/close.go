package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// How long to wait for a shutdown: as RTD3E says, within these bounds, which are Linux's.
const (
	shutdownLeast = 5 * time.Second
	shutdownMost  = 60 * time.Second
)

// Shutdown closes the controller in an orderly way: it makes the queues refuse new requests, tells the controller to
// shut down (CC.SHN), waits until it has (CSTS.SHST), and closes every queue. Commands still outstanding, and requests
// submitted in the meantime, end with ErrClosed, whatever ends the controller. Shutdown returns when everything is
// released; the error says why the controller could not be shut down in an orderly way, and is that of Err if the
// controller had already been lost. If another call is in progress, Shutdown waits for it, cuts it short when ctx ends,
// and leaves the error to it. It must not be called from Done.
func (c *Controller) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	first := !c.closing && c.err == nil
	c.closing = true
	err, queues := c.err, c.queues
	c.mu.Unlock()
	if first {
		for _, q := range queues {
			q.refuse(errClosed, false)
		}
		err = c.shutDown(ctx)
		c.fail(errClosed)
	} else {
		defer context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })()
	}
	<-c.torn
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// Close is Shutdown with only the built-in limit: five seconds, or what the controller says that it needs (RTD3E),
// up to 60 s. A controller that is already closed is no error.
func (c *Controller) Close() error { return c.Shutdown(context.Background()) }

func (c *Controller) shutDown(ctx context.Context) error {
	limit := time.Duration(c.identity.RTD3E) * time.Microsecond
	limit = min(max(limit, shutdownLeast), shutdownMost)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: not shut down after %v (RTD3E)", ErrTimeout, limit))
	defer cancel()
	// If the controller hangs, so do these commands, and nobody is left to abort them.
	defer context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })()
	err := c.askToShutDown(ctx, limit)
	switch cause := context.Cause(ctx); {
	case errors.Is(err, ErrClosed):
		err = c.whatCut()
	case err != nil && cause != nil && !errors.Is(err, cause):
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	var lost *LostError // its text already names the controller
	if err != nil && !errors.As(err, &lost) {
		err = fmt.Errorf("nvme: shutdown of %s at %s: %w", c.cfg.SubNQN, c.cfg.Remote, err)
	}
	return err
}

// whatCut returns what ended the controller before it had shut down.
func (c *Controller) whatCut() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

// askToShutDown is the part of shutDown that ctx interrupts.
func (c *Controller) askToShutDown(ctx context.Context, limit time.Duration) error {
	cc := nvme.CCFabrics | c.commandSets() | nvme.CCEnable | nvme.CCSHNNormal
	if err := c.setProperty(ctx, nvme.PropCC, uint64(cc)); err != nil {
		return err
	}
	return c.waitCSTS(ctx, limit, func(s nvme.CSTS) bool { return s.Shutdown() == nvme.CSTSShutdownComplete })
}
