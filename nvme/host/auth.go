package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
)

// Authentication is how this host authenticates itself (DH-HMAC-CHAP) on every queue of a controller that demands
// it.
type Authentication struct {
	Secret *dhchap.Secret // that this host proves to know
	// ControllerSecret is the secret that the controller has to prove to know; if nil, the controller isn't asked.
	// If it is set, the host starts authentication even if the controller doesn't demand it, except with discovery
	// controllers.
	ControllerSecret *dhchap.Secret
	// Hashes and DHGroups are offered to the controller, which chooses; nil means all.
	Hashes   []nvme.AuthHash
	DHGroups []nvme.DHGroup
}

// Validate reports what is wrong with a.
func (a *Authentication) Validate() error {
	switch {
	case a.Secret == nil:
		return errors.New("it needs a Secret")
	case a.Secret.Equal(&dhchap.Secret{}), a.ControllerSecret.Equal(&dhchap.Secret{}):
		return errors.New("a secret is empty, which everybody knows")
	case a.Secret.Equal(a.ControllerSecret):
		return errors.New("the secrets of host and controller are the same: the controller could pass as this host")
	case slices.ContainsFunc(a.Hashes, func(h nvme.AuthHash) bool { return h.Size() == 0 }):
		return fmt.Errorf("a hash function of %v isn't known", a.Hashes)
	case slices.ContainsFunc(a.DHGroups, func(g nvme.DHGroup) bool { return !g.Known() }):
		return fmt.Errorf("a DH group of %v isn't known", a.DHGroups)
	}
	return nil
}

// offer returns what is offered in transaction tid.
func (a *Authentication) offer(tid uint16) nvme.AuthNegotiate {
	n := nvme.AuthNegotiate{TID: tid, Hash: a.Hashes, DH: a.DHGroups}
	if n.Hash == nil {
		n.Hash = nvme.AuthHashes()
	}
	if n.DH == nil {
		n.DH = nvme.DHGroups()
	}
	return n
}

// errNoSecret: there is nothing to answer a challenge with.
var errNoSecret = fmt.Errorf("%w: the controller demands it, and no secret was given", ErrAuthentication)

// authenticateNew authenticates the host on a queue that was just connected, if it has to.
func (c *Controller) authenticateNew(ctx context.Context, q *Queue, demanded bool) error {
	a := c.auth.Load()
	switch {
	case a == nil && demanded:
		return errNoSecret
	case demanded, a != nil && a.ControllerSecret != nil && c.cfg.SubNQN != nvme.DiscoveryNQN:
		return c.authenticate(ctx, q, a)
	}
	return nil
}

// Authenticate authenticates the host again, on the admin queue and then on each I/O queue, while commands
// continue. a replaces the secrets of the configuration; nil keeps them. A failure ends the controller: the error then
// matches ErrLost. Calls wait for each other: a queue has one transaction at a time.
func (c *Controller) Authenticate(ctx context.Context, a *Authentication) error {
	select {
	case c.authTurn <- struct{}{}:
		defer func() { <-c.authTurn }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil { // nothing was sent, so nothing has failed
		return fmt.Errorf("nvme: authentication: %w", err)
	}
	if a == nil {
		a = c.auth.Load()
	}
	if a == nil {
		return fmt.Errorf("nvme: %w: Authentication: it must be set", ErrConfig)
	}
	if err := a.Validate(); err != nil {
		return fmt.Errorf("nvme: %w: Authentication: %w", ErrConfig, err)
	}
	c.auth.Store(a)
	for _, q := range append([]*Queue{c.admin}, c.io...) {
		if err := c.authenticate(ctx, q, a); err != nil {
			return c.notAuthenticated(c.connectError("authentication", q.attr.QID, err))
		}
	}
	return nil
}

// notAuthenticated ends the controller because of err, and returns the error of Authenticate. A controller that is
// being shut down goes on with that.
func (c *Controller) notAuthenticated(err error) error {
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrLost) {
		return err
	}
	err = c.lost(err)
	c.fail(err)
	return err
}

// authenticate runs one transaction of DH-HMAC-CHAP (NVMe base 2.1, section 8.3.4.5).
func (c *Controller) authenticate(ctx context.Context, q *Queue, a *Authentication) error {
	x := &transaction{c: c, q: q, a: a, tid: uint16(dhchap.Sequence())} // identifiers count up likewise
	err := x.run(ctx)
	var why nvme.AuthExplanation
	if !errors.As(err, &why) {
		return err // success, or the connection or a command failed rather than the authentication
	}
	if !x.told {
		// Don't leave the controller waiting. Its answer makes no difference any more.
		f := nvme.AuthFailure{ByHost: true, TID: x.tid, Explanation: why}
		_ = x.send(ctx, f.AppendTo(nil))
	}
	return fmt.Errorf("%w: %w", ErrAuthentication, err)
}

// transaction is the host's side of DH-HMAC-CHAP on one queue.
type transaction struct {
	c    *Controller
	q    *Queue
	a    *Authentication
	tid  uint16
	told bool // the controller has said that it failed
}

func (x *transaction) run(ctx context.Context) error {
	offer := x.a.offer(x.tid)
	if err := x.send(ctx, offer.AppendTo(nil)); err != nil {
		return err
	}
	var ch nvme.AuthChallenge
	b, err := x.receive(ctx)
	if err != nil {
		return err
	}
	if err := ch.Parse(b); err != nil {
		return err
	}
	switch {
	case ch.TID != x.tid:
		return x.wrongTID(ch.TID)
	case !slices.Contains(offer.Hash, ch.Hash):
		return fmt.Errorf("the controller chose %v, which wasn't offered: %w", ch.Hash, nvme.AuthHashUnusable)
	case !slices.Contains(offer.DH, ch.DH):
		return fmt.Errorf("the controller chose %v, which wasn't offered: %w", ch.DH, nvme.AuthDHGroupUnusable)
	}
	exchange := dhchap.NewExchange(ch.DH, ch.Hash)
	math := dhchap.Transaction{Hash: ch.Hash, TID: x.tid, HostNQN: x.c.cfg.HostNQN, SubNQN: x.c.cfg.SubNQN}
	if math.SessionKey, err = exchange.SessionKey(ch.DHV); err != nil {
		return fmt.Errorf("%w: %w", err, nvme.AuthIncorrectPayload)
	}
	reply := nvme.AuthReply{
		TID: x.tid, SEQNUM: dhchap.Sequence(), DHV: exchange.Public(),
		RVAL: math.HostResponse(x.a.Secret, ch.CVAL, ch.SEQNUM),
	}
	if x.a.ControllerSecret != nil {
		reply.CVALID, reply.CVAL = true, dhchap.Challenge(ch.Hash)
	}
	if err := x.send(ctx, reply.AppendTo(nil)); err != nil {
		return err
	}
	return x.finish(ctx, &math, &reply)
}

// finish handles the controller's answer to the reply.
func (x *transaction) finish(ctx context.Context, math *dhchap.Transaction, reply *nvme.AuthReply) error {
	var s nvme.AuthSuccess1
	b, err := x.receive(ctx)
	if err != nil {
		return err
	}
	if err := s.Parse(b, math.Hash); err != nil {
		return err
	}
	switch {
	case s.TID != x.tid:
		return x.wrongTID(s.TID)
	case !reply.CVALID:
		return nil
	case !s.RVALID || !dhchap.Equal(s.RVAL, math.ControllerResponse(x.a.ControllerSecret, reply.CVAL, reply.SEQNUM)):
		return fmt.Errorf("the controller doesn't know its secret: %w", nvme.AuthFailed)
	}
	return x.send(ctx, (&nvme.AuthSuccess2{TID: x.tid}).AppendTo(nil))
}

// wrongTID returns the error for a message of another transaction.
func (x *transaction) wrongTID(tid uint16) error {
	return fmt.Errorf("transaction %d in transaction %d: %w", tid, x.tid, nvme.AuthIncorrectPayload)
}

func (x *transaction) send(ctx context.Context, message []byte) error {
	var cmd nvme.Command
	cmd.SetAuthSend(uint32(len(message)))
	_, err := x.c.commandOn(ctx, x.q, &cmd, message)
	return err
}

// receive fetches a message. An AUTH_Failure1 is returned as an error with the controller's explanation.
func (x *transaction) receive(ctx context.Context) ([]byte, error) {
	b := make([]byte, nvme.MaxAuthMessage)
	var cmd nvme.Command
	cmd.SetAuthReceive(nvme.MaxAuthMessage)
	if _, err := x.c.commandOn(ctx, x.q, &cmd, b); err != nil {
		return nil, err
	}
	kind, _, err := nvme.AuthHead(b)
	if err != nil || kind != nvme.AuthFailure1Message {
		return b, err
	}
	var f nvme.AuthFailure
	if err := f.Parse(b); err != nil {
		return nil, err
	}
	x.told = true
	return nil, fmt.Errorf("the controller says: %w", f.Explanation)
}
