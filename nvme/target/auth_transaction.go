package target

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
)

// authStep is what a transaction waits for.
type authStep uint8

const (
	authNegotiate authStep = iota // no transaction: the host begins one
	authChallenge                 // the host fetches the challenge
	authReply                     // the host answers it
	authSuccess1                  // the host fetches our answer
	authSuccess2                  // the host says that it knows us
	authFailure1                  // the host fetches the failure
	authOver                      // nothing: it failed
)

// transaction is the controller's side of DH-HMAC-CHAP on one queue, for one transaction after the other (NVMe base
// 2.1, section 8.3.4.5). It takes and returns messages, and has neither timeouts nor locks.
type transaction struct {
	host, sub string // NQNs

	step     authStep
	math     dhchap.Transaction
	group    nvme.DHGroup
	secrets  HostSecrets // as of when it began
	exchange *dhchap.Exchange
	c1       []byte
	s1       uint32
	r2       []byte // for a host that wants us to authenticate ourselves; else nil
	failure  error  // why it failed; wraps an nvme.AuthExplanation
}

// errNoSecret: the host authenticates itself unasked.
var errNoSecret = fmt.Errorf("the host has no secret here: %w", nvme.AuthFailed)

// errSecretGone: since Connect demanded it.
var errSecretGone = fmt.Errorf("%w: the host's secret was taken away meanwhile", ErrAuthentication)

// receive takes a message of the host. a applies to a transaction that begins.
func (x *transaction) receive(b []byte, a *Authentication) {
	kind, tid, err := nvme.AuthHead(b)
	if err == nil {
		err = x.take(kind, tid, b, a)
	}
	if err != nil {
		x.fail(err)
	}
}

func (x *transaction) take(kind nvme.AuthKind, tid uint16, b []byte, a *Authentication) error {
	if x.step == authNegotiate {
		x.math = dhchap.Transaction{TID: tid, HostNQN: x.host, SubNQN: x.sub}
	}
	rejected := kind == nvme.AuthFailure2Message && (x.step == authReply || x.step == authSuccess2)
	switch {
	case !rejected && !x.due(kind):
		return fmt.Errorf("the host sent %v: %w", kind, nvme.AuthIncorrectMessage)
	case tid != x.math.TID:
		return fmt.Errorf("%v of transaction %d in transaction %d: %w", kind, tid, x.math.TID, nvme.AuthIncorrectPayload)
	case rejected:
		return x.rejected(b)
	case kind == nvme.AuthNegotiateMessage:
		return x.negotiate(b, a)
	case kind == nvme.AuthReplyMessage:
		return x.reply(b)
	}
	var s nvme.AuthSuccess2
	if err := s.Parse(b); err != nil {
		return err
	}
	x.step = authNegotiate
	x.forget()
	return nil
}

// due reports whether a message is the one that the host has to send next.
func (x *transaction) due(k nvme.AuthKind) bool {
	switch x.step {
	case authNegotiate:
		return k == nvme.AuthNegotiateMessage
	case authReply:
		return k == nvme.AuthReplyMessage
	case authSuccess2:
		return k == nvme.AuthSuccess2Message
	case authChallenge, authSuccess1, authFailure1, authOver:
	}
	return false
}

// fail ends the transaction; the host is told why when it asks. Only the first reason counts.
func (x *transaction) fail(err error) {
	if x.failure == nil {
		x.step, x.failure = authFailure1, err
		x.forget()
	}
}

// abandon ends a transaction that doesn't go on, which is no failure.
func (x *transaction) abandon() {
	x.step = authNegotiate
	x.forget()
}

// forget drops what a finished transaction must not leave in memory.
func (x *transaction) forget() {
	x.secrets, x.exchange, x.math.SessionKey = HostSecrets{}, nil, nil
}

// errRejected: the host ended the transaction, so it needn't be told.
var errRejected = errors.New("the host rejects it")

func (x *transaction) rejected(b []byte) error {
	var f nvme.AuthFailure
	if err := f.Parse(b); err != nil {
		return err
	}
	x.step, x.failure = authOver, fmt.Errorf("%w: %w", errRejected, f.Explanation)
	x.forget()
	return nil
}

// negotiate begins a transaction.
func (x *transaction) negotiate(b []byte, a *Authentication) error {
	var n nvme.AuthNegotiate
	if err := n.Parse(b); err != nil {
		return err
	}
	if !a.knows(x.host) {
		return errNoSecret
	}
	x.secrets = a.Hosts[x.host]
	var ok bool
	if n.SCC != 0 {
		return fmt.Errorf("SC_C is %d, and there is no secure channel: %w", n.SCC, nvme.AuthSecureChannel)
	}
	if x.math.Hash, ok = firstOf(a.Hashes, n.Hash); !ok {
		return fmt.Errorf("the host offers %v, and %v may be used: %w", n.Hash, a.Hashes, nvme.AuthHashUnusable)
	}
	if x.group, ok = firstOf(a.DHGroups, n.DH); !ok {
		return fmt.Errorf("the host offers %v, and %v may be used: %w", n.DH, a.DHGroups, nvme.AuthDHGroupUnusable)
	}
	x.step = authChallenge
	return nil
}

// firstOf returns the first of ours that is among theirs.
func firstOf[T comparable](ours, theirs []T) (T, bool) {
	for _, v := range ours {
		if slices.Contains(theirs, v) {
			return v, true
		}
	}
	var none T
	return none, false
}

// reply checks the host's response. What is cheap to check is checked first.
func (x *transaction) reply(b []byte) error {
	var r nvme.AuthReply
	if err := r.Parse(b, x.math.Hash, x.group); err != nil {
		return err
	}
	switch {
	case r.CVALID && r.SEQNUM == 0:
		return fmt.Errorf("a challenge with sequence number 0: %w", nvme.AuthIncorrectPayload)
	case r.CVALID && dhchap.Equal(r.CVAL, x.c1):
		return fmt.Errorf("the host's challenge is ours: %w", nvme.AuthFailed)
	}
	var err error
	if x.math.SessionKey, err = x.exchange.SessionKey(r.DHV); err != nil {
		return fmt.Errorf("%w: %w", err, nvme.AuthIncorrectPayload)
	}
	if !dhchap.Equal(r.RVAL, x.math.HostResponse(x.secrets.Host, x.c1, x.s1)) {
		return fmt.Errorf("the host's response is wrong: %w", nvme.AuthFailed)
	}
	x.r2 = nil
	if r.CVALID {
		if x.secrets.Controller == nil {
			return fmt.Errorf("the host wants to know the controller, which has no secret for it: %w", nvme.AuthFailed)
		}
		x.r2 = x.math.ControllerResponse(x.secrets.Controller, r.CVAL, r.SEQNUM)
	}
	x.step = authSuccess1
	return nil
}

// size returns the length of the message that next returns.
func (x *transaction) size() int {
	switch x.step {
	case authChallenge:
		return nvme.AuthChallengeSize(x.math.Hash, x.group)
	case authSuccess1:
		s := nvme.AuthSuccess1{Hash: x.math.Hash, RVALID: x.r2 != nil}
		return s.Size()
	}
	return nvme.AuthFailureSize
}

// next returns the message for a host that asks for one.
func (x *transaction) next() []byte {
	switch x.step {
	case authChallenge:
		x.exchange = dhchap.NewExchange(x.group, x.math.Hash)
		x.c1, x.s1 = dhchap.Challenge(x.math.Hash), dhchap.Sequence()
		x.step = authReply
		c := nvme.AuthChallenge{
			TID: x.math.TID, Hash: x.math.Hash, DH: x.group, SEQNUM: x.s1, CVAL: x.c1, DHV: x.exchange.Public(),
		}
		return c.AppendTo(nil)
	case authSuccess1:
		s := nvme.AuthSuccess1{TID: x.math.TID, Hash: x.math.Hash, RVALID: x.r2 != nil, RVAL: x.r2}
		x.step = authNegotiate
		if s.RVALID {
			x.step = authSuccess2
		}
		x.forget()
		return s.AppendTo(nil)
	case authNegotiate, authReply, authSuccess2:
		x.fail(fmt.Errorf("the host asks for a message where it has to send one: %w", nvme.AuthIncorrectMessage))
	case authFailure1, authOver:
	}
	f := nvme.AuthFailure{TID: x.math.TID, Explanation: nvme.AuthFailed}
	_ = errors.As(x.failure, &f.Explanation) // there is one in every failure
	x.step = authOver
	return f.AppendTo(nil)
}
