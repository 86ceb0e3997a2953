package target

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// queueAuth is the authentication of one queue. It is made by a Connect that demands authentication, or by the first
// authentication command of a host that chooses to.
type queueAuth struct {
	busy   atomic.Bool // a command is working on tx
	tx     transaction
	late   bool        // the host took too long to go on with tx, which has ended; guarded by busy
	failed atomic.Bool // it failed, and that was counted and logged
	timer  *time.Timer // until the next command of a transaction
	last   atomic.Pointer[AuthStats]
}

// AuthStats says how a queue was last authenticated.
type AuthStats struct {
	Hash          nvme.AuthHash
	DHGroup       nvme.DHGroup
	Bidirectional bool // the controller proved itself as well
	Since         time.Time
}

// maxAuthTimeout bounds each step if the controller has no keep-alive timeout, or a longer one: the host that chose
// that hasn't proved who it is yet.
const maxAuthTimeout = 2 * time.Minute

// authTimeout is how long a host has for each step.
func (c *controller) authTimeout() time.Duration {
	return min(cmp.Or(c.keepAlive(), maxAuthTimeout), maxAuthTimeout)
}

// newAuth prepares q for authentication. The timeout starts now.
func (q *Queue) newAuth() *queueAuth {
	c := q.ctrl
	a := &queueAuth{tx: transaction{host: c.hostNQN, sub: c.sub.nqn}}
	a.timer = time.AfterFunc(c.authTimeout(), func() { q.authTimeout(a) }) // q may not have a yet
	return a
}

// hasAuth reports whether q supports the commands of authentication: it doesn't if no host has to authenticate itself.
func (q *Queue) hasAuth() bool { return q.auth.Load() != nil || q.t.auth.Load() != nil }

// authTimeout runs when a host has taken too long. One that has been authenticated stays so, and may begin again.
func (q *Queue) authTimeout(a *queueAuth) {
	switch q.state.Load() {
	case queueDown:
		return
	case queueConnected, queueFused, queueDraining:
		if a.busy.CompareAndSwap(false, true) { // otherwise it goes on just now
			a.tx.abandon()
			a.late = true
			a.busy.Store(false)
		}
		return
	}
	if !a.failed.Load() {
		q.noteAuth(false)
		q.t.log.Warn("authentication failed: the host doesn't go on", q.identity("timeout", q.ctrl.authTimeout())...)
	}
	q.disconnect(ErrAuthentication)
}

// authenticates reports whether a command is one of those that may precede authentication.
func (r *Request) authenticates() bool {
	t := r.Cmd.FCType()
	return r.Cmd.Opcode() == nvme.OpFabrics && (t == nvme.FCAuthSend || t == nvme.FCAuthReceive)
}

// authLength checks the fields of Authentication Send and Receive and the data pointer, and returns the length. If it
// responds with an error it returns 0.
func (r *Request) authLength(most int) int {
	switch n := r.Cmd.AuthLength(); {
	case r.Cmd[nvme.AuthOffSECP] != nvme.AuthSECP:
		r.fail(nvme.StatusInvalidField, nvme.AuthOffSECP)
	case r.Cmd[nvme.AuthOffSPSP0] != nvme.AuthSPSP0:
		r.fail(nvme.StatusInvalidField, nvme.AuthOffSPSP0)
	case r.Cmd[nvme.AuthOffSPSP1] != nvme.AuthSPSP1:
		r.fail(nvme.StatusInvalidField, nvme.AuthOffSPSP1)
	case n == 0 || uint64(n) > uint64(most):
		r.fail(nvme.StatusInvalidField, nvme.AuthOffLength)
	case r.mapSGL(int(n)):
		return int(n)
	}
	return 0
}

// authSend executes Authentication Send, which carries a message of the host. It succeeds whatever the message says;
// the reply is for Authentication Receive.
func (r *Request) authSend() {
	if n := r.authLength(nvme.MaxAuthMessage); n > 0 {
		r.withHostData(n, (*Request).authMessage)
	}
}

func (r *Request) authMessage() {
	b := make([]byte, r.Cmd.AuthLength())
	r.hostData(b, 0)
	kind, _, err := nvme.AuthHead(b)
	begins := err == nil && kind == nvme.AuthNegotiateMessage
	rules := r.engine.q.t.auth.Load()
	if begins && r.engine.q.state.Load() == queueAuthenticating && !rules.knows(r.engine.q.ctrl.hostNQN) {
		// The host has done nothing wrong: when it connects again it may, or is refused, by the new rules.
		r.engine.hangUp, r.engine.hangUpErr = true, errSecretGone
		r.respond(nvme.StatusOperationDenied)
		return
	}
	if a := r.takeAuth(begins); a != nil {
		r.withAuth(a, func() {
			a.tx.receive(b, rules)
		}, func() {
			r.respond(nvme.StatusSuccess)
		})
	}
}

// authReceive executes Authentication Receive: it returns our message, followed by zeroes.
func (r *Request) authReceive() {
	n := r.authLength(r.engine.q.attr.MaxTransfer)
	if n == 0 {
		return
	}
	a := r.takeAuth(false)
	if a == nil {
		return
	}
	if n < a.tx.size() {
		a.busy.Store(false)
		r.fail(nvme.StatusInvalidField, nvme.AuthOffLength)
		return
	}
	r.withAuth(a, func() {
		r.engine.page = a.tx.next()
	}, func() {
		r.withMemory(n, (*Request).replyPage)
	})
}

// takeAuth makes r the only command that works on the authentication of its queue. If another one does, because the
// host didn't wait for its response, or if the transaction that r continues has timed out, r gets a sequence error, and
// the result is nil.
func (r *Request) takeAuth(begins bool) *queueAuth {
	q := r.engine.q
	a := q.auth.Load()
	if a == nil { // the host begins, though it needn't: it can't be late yet
		a = q.newAuth()
		a.timer.Stop()
		if !q.auth.CompareAndSwap(nil, a) {
			a = q.auth.Load()
		}
	}
	if !a.busy.CompareAndSwap(false, true) {
		r.respond(nvme.StatusCommandSequence)
		return nil
	}
	if a.late && !begins {
		a.busy.Store(false)
		r.respond(nvme.StatusCommandSequence)
		return nil
	}
	a.late = false
	return a
}

// withAuth runs work on the transaction, for which r took a, notes the result, releases a and continues with then.
//
// The work may compute powers modulo a large prime, which must not keep other connections waiting: it is done in a
// goroutine of its own, few at a time, and not at all if the connection has ended meanwhile. No timeout runs while it
// is done.
func (r *Request) withAuth(a *queueAuth, work, then func()) {
	q := r.engine.q
	a.timer.Stop()
	go func() {
		q.t.computing.take(q.attr.Remote.Addr())
		before := a.tx.step
		if q.state.Load() != queueDown {
			work()
		}
		q.t.computing.leave()
		q.seen.Store(q.t.Now())
		if q.state.Load() != queueDown {
			r.authStepped(a, before)
		}
		a.busy.Store(false)
		then()
	}()
}

// authStepped acts on the result of a step, which began in step before.
func (r *Request) authStepped(a *queueAuth, before authStep) {
	q := r.engine.q
	x := &a.tx
	switch {
	case x.failure != nil:
		// Until the connection is gone, nothing is executed any more, even if the host that failed had been
		// authenticated.
		q.deny()
		if before < authFailure1 {
			a.failed.Store(true)
			q.noteAuth(false)
			q.t.log.Warn("authentication failed", q.identity("reason", x.failure)...)
		}
		if x.step == authOver {
			a.timer.Stop()
			r.engine.hangUp, r.engine.hangUpErr = true, ErrAuthentication
			return
		}
	case x.step == authNegotiate && before != authNegotiate:
		a.timer.Stop()
		q.authenticated(a)
		return
	}
	a.timer.Reset(q.ctrl.authTimeout())
}

// deny lets through no commands except those of authentication, even if the host has been authenticated before. The
// first half of a fused operation that q holds is aborted.
func (q *Queue) deny() {
	for {
		switch q.state.Load() {
		case queueConnected:
			if q.state.CompareAndSwap(queueConnected, queueDenied) {
				return
			}
		case queueFused:
			if q.state.CompareAndSwap(queueFused, queueDenied) {
				q.fused.respond(nvme.StatusAbortMissingFused)
				return
			}
		default:
			return
		}
	}
}

func (q *Queue) authenticated(a *queueAuth) {
	x := &a.tx
	first := q.state.CompareAndSwap(queueAuthenticating, queueConnected)
	q.proved()
	s := &AuthStats{Hash: x.math.Hash, DHGroup: x.group, Bidirectional: x.r2 != nil, Since: time.Now()}
	a.last.Store(s)
	q.noteAuth(true)
	log := q.t.log.Debug
	if q.qid == 0 {
		log = q.t.log.Info
	}
	log("host authenticated", q.identity("hash", s.Hash, "dhgroup", s.DHGroup, "bidirectional", s.Bidirectional, "again", !first)...)
}

// noteAuth counts a transaction that succeeded or failed.
func (q *Queue) noteAuth(ok bool) {
	q.t.mu.Lock()
	defer q.t.mu.Unlock()
	if n := q.t.totals(q.attr.Transport); ok {
		n.authentications++
	} else {
		n.authFailures++
	}
}
