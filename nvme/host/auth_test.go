package host

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
)

func testSecret(t testing.TB) *dhchap.Secret {
	t.Helper()
	s, err := dhchap.Generate(nvme.AuthSHA512, 64)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// authController is the controller's side of DH-HMAC-CHAP in front of a fakeTarget.
type authController struct {
	t       *testing.T
	demands bool // ATR
	secret  *dhchap.Secret
	ctrl    *dhchap.Secret
	hash    nvme.AuthHash
	group   nvme.DHGroup
	// alter changes what is sent; nil changes nothing.
	alter func(k nvme.AuthKind, b []byte) []byte

	mu    sync.Mutex
	on    map[uint16]*authState // by QID
	heard []nvme.AuthFailure    // AUTH_Failure2
	done  int                   // transactions that succeeded
}

type authState struct {
	tx      dhchap.Transaction
	x       *dhchap.Exchange
	c1      []byte
	next    []byte // for Authentication Receive
	offered nvme.AuthNegotiate
}

func newAuthController(t *testing.T, f *fakeTarget) *authController {
	a := &authController{t: t, demands: true, secret: testSecret(t), ctrl: testSecret(t),
		hash: nvme.AuthSHA384, group: nvme.DHFFDHE2048, on: map[uint16]*authState{}}
	f.hook = a.hook
	return a
}

func (a *authController) hook(q *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
	if r.Cmd.Opcode() != nvme.OpFabrics {
		return usual
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch r.Cmd.FCType() {
	case nvme.FCConnect:
		q.t.fabrics(q, r, cqe)
		if a.demands && cqe.Status().OK() {
			cqe.SetDW0(cqe.DW0() | uint32(nvme.ConnectATR))
		}
	case nvme.FCAuthSend:
		if int(r.Cmd.AuthLength()) != len(r.Data) {
			a.t.Errorf("TL is %d, of %d bytes", r.Cmd.AuthLength(), len(r.Data))
		}
		a.take(q.attr.QID, r.Data)
	case nvme.FCAuthReceive:
		if r.Cmd.AuthLength() != nvme.MaxAuthMessage {
			a.t.Errorf("AL is %d", r.Cmd.AuthLength())
		}
		clear(r.Data)
		copy(r.Data, a.on[q.attr.QID].next)
	default:
		return usual
	}
	return answered
}

func (a *authController) take(qid uint16, b []byte) {
	kind, tid, err := nvme.AuthHead(b)
	if err != nil {
		a.t.Error(err)
	}
	s := a.on[qid]
	switch kind {
	case nvme.AuthNegotiateMessage:
		s = &authState{tx: dhchap.Transaction{Hash: a.hash, TID: tid, HostNQN: testHostNQN, SubNQN: testNQN}, x: dhchap.NewExchange(a.group, a.hash)}
		a.on[qid] = s
		if err := s.offered.Parse(b); err != nil {
			a.t.Error(err)
		}
		s.c1 = dhchap.Challenge(a.hash)
		c := nvme.AuthChallenge{TID: tid, Hash: a.hash, DH: a.group, SEQNUM: 5, CVAL: s.c1, DHV: s.x.Public()}
		s.next = a.altered(nvme.AuthChallengeMessage, c.AppendTo(nil))
	case nvme.AuthReplyMessage:
		a.reply(s, b)
	case nvme.AuthSuccess2Message:
		a.done++
	case nvme.AuthFailure2Message:
		var f nvme.AuthFailure
		if err := f.Parse(b); err != nil {
			a.t.Error(err)
		}
		a.heard = append(a.heard, f)
	default:
		a.t.Errorf("the host sent %v", kind)
	}
}

func (a *authController) reply(s *authState, b []byte) {
	var r nvme.AuthReply
	err := r.Parse(b, a.hash, a.group)
	if err == nil {
		s.tx.SessionKey, err = s.x.SessionKey(r.DHV)
	}
	if err != nil {
		a.t.Error(err)
	}
	if !dhchap.Equal(r.RVAL, s.tx.HostResponse(a.secret, s.c1, 5)) {
		s.next = (&nvme.AuthFailure{TID: s.tx.TID, Explanation: nvme.AuthFailed}).AppendTo(nil)
		return
	}
	ok := nvme.AuthSuccess1{TID: s.tx.TID, Hash: a.hash, RVALID: r.CVALID}
	if r.CVALID {
		ok.RVAL = s.tx.ControllerResponse(a.ctrl, r.CVAL, r.SEQNUM)
	} else {
		a.done++
	}
	s.next = a.altered(nvme.AuthSuccess1Message, ok.AppendTo(nil))
}

func (a *authController) altered(k nvme.AuthKind, b []byte) []byte {
	if a.alter != nil {
		return a.alter(k, b)
	}
	return b
}

func authConfig(f *fakeTarget, a *Authentication) Config {
	cfg := f.config()
	cfg.HostNQN, cfg.Queues, cfg.Authentication = testHostNQN, 2, a
	return cfg
}

// TestAuthentication: on every queue, with whatever the controller chooses, one way and both ways.
func TestAuthentication(t *testing.T) {
	for _, g := range []nvme.DHGroup{nvme.DHNull, nvme.DHFFDHE2048} {
		for _, h := range nvme.AuthHashes() {
			for _, both := range []bool{false, true} {
				f := newFakeTarget()
				a := newAuthController(t, f)
				a.hash, a.group = h, g
				auth := &Authentication{Secret: a.secret}
				if both {
					auth.ControllerSecret = a.ctrl
				}
				c, err := Connect(t.Context(), authConfig(f, auth))
				if err != nil {
					t.Fatalf("%v, %v, both %v: %v", h, g, both, err)
				}
				if a.done != 3 || len(a.heard) != 0 {
					t.Errorf("%d queues authenticated, failures %v", a.done, a.heard)
				}
				if a.on[0].tx.TID == a.on[1].tx.TID || a.on[1].tx.TID == a.on[2].tx.TID {
					t.Error("two transactions have the same identifier")
				}
				closeController(t, c)
			}
		}
	}
}

// TestAuthenticationOffer: the host offers what it is told to, or everything, and accepts nothing else.
func TestAuthenticationOffer(t *testing.T) {
	f := newFakeTarget()
	a := newAuthController(t, f)
	c, err := Connect(t.Context(), authConfig(f, &Authentication{Secret: a.secret}))
	if err != nil {
		t.Fatal(err)
	}
	if o := a.on[0].offered; len(o.Hash) != 3 || len(o.DH) != 6 || o.SCC != 0 {
		t.Errorf("offered %+v", o)
	}
	closeController(t, c)
	for want, auth := range map[nvme.AuthExplanation]*Authentication{
		nvme.AuthHashUnusable:    {Secret: a.secret, Hashes: []nvme.AuthHash{nvme.AuthSHA512}},
		nvme.AuthDHGroupUnusable: {Secret: a.secret, DHGroups: []nvme.DHGroup{nvme.DHFFDHE3072}},
	} {
		f := newFakeTarget()
		b := newAuthController(t, f)
		b.secret = a.secret
		_, err := Connect(t.Context(), authConfig(f, auth))
		if !errors.Is(err, ErrAuthentication) || !errors.Is(err, want) || len(b.heard) != 1 || b.heard[0].Explanation != want {
			t.Errorf("%v, AUTH_Failure2 %v, want %v", err, b.heard, want)
		}
	}
}

// TestAuthenticationFails: a controller that misbehaves is told by AUTH_Failure2, with the specification's
// explanation; one that refuses the host need not be told.
func TestAuthenticationFails(t *testing.T) {
	const challenge, success1 = nvme.AuthChallengeMessage, nvme.AuthSuccess1Message
	put := func(kind nvme.AuthKind, at int, v byte) func(*authController) {
		return func(a *authController) {
			a.alter = func(k nvme.AuthKind, b []byte) []byte {
				if k == kind {
					b[at] = v
				}
				return b
			}
		}
	}
	otherTransaction := func(kind nvme.AuthKind) func(*authController) {
		return func(a *authController) {
			a.alter = func(k nvme.AuthKind, b []byte) []byte {
				if k == kind {
					b[5] ^= 0x77 // whatever it is: transactions count from a random one
				}
				return b
			}
		}
	}
	for name, c := range map[string]struct {
		how   func(*authController)
		want  nvme.AuthExplanation
		quiet bool // no AUTH_Failure2
	}{
		"wrong secret":            {func(a *authController) { a.secret = testSecret(a.t) }, nvme.AuthFailed, true},
		"wrong controller secret": {func(a *authController) { a.ctrl = testSecret(a.t) }, nvme.AuthFailed, false},
		"no response":             {put(success1, 8, 0), nvme.AuthFailed, false},
		"length in success":       {put(success1, 6, 32), nvme.AuthIncorrectPayload, false},
		"transaction in success":  {otherTransaction(success1), nvme.AuthIncorrectPayload, false},
		"unknown hash":            {put(challenge, 8, 7), nvme.AuthHashUnusable, false},
		"unknown group":           {put(challenge, 9, 9), nvme.AuthDHGroupUnusable, false},
		"sequence number 0":       {put(challenge, 12, 0), nvme.AuthIncorrectPayload, false},
		"length in challenge":     {put(challenge, 6, 32), nvme.AuthIncorrectPayload, false},
		"transaction":             {otherTransaction(challenge), nvme.AuthIncorrectPayload, false},
		"success first":           {put(challenge, 1, 3), nvme.AuthIncorrectMessage, false},
		"challenge twice":         {put(success1, 1, 1), nvme.AuthIncorrectMessage, false},
		"bad DH value": {func(a *authController) {
			a.alter = func(k nvme.AuthKind, b []byte) []byte {
				if k == challenge {
					clear(b[len(b)-256:])
				}
				return b
			}
		}, nvme.AuthIncorrectPayload, false},
	} {
		f := newFakeTarget()
		a := newAuthController(t, f)
		auth := &Authentication{Secret: a.secret, ControllerSecret: a.ctrl}
		c.how(a)
		_, err := Connect(t.Context(), authConfig(f, auth))
		var ce *ConnectError
		if !errors.Is(err, ErrAuthentication) || !errors.Is(err, c.want) || !errors.As(err, &ce) || ce.Stage != "authentication" {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if c.quiet != (len(a.heard) == 0) || len(a.heard) > 0 && (a.heard[0].Explanation != c.want || a.heard[0].TID != a.on[0].tx.TID) {
			t.Errorf("%s: AUTH_Failure2 %+v", name, a.heard)
		}
		if err != nil && strings.Contains(err.Error(), auth.Secret.Text()[10:20]) {
			t.Errorf("%s: the error has the secret", name)
		}
	}
}

// TestAuthenticationUnasked: a host with a secret for the controller asks for proof, whether or not the controller
// demands authentication, except for discovery.
func TestAuthenticationUnasked(t *testing.T) {
	f := newFakeTarget()
	a := newAuthController(t, f)
	a.demands = false
	auth := &Authentication{Secret: a.secret}
	for _, want := range []int{0, 3} {
		c, err := Connect(t.Context(), authConfig(f, auth))
		if err != nil {
			t.Fatal(err)
		}
		if a.done != want {
			t.Errorf("%d queues authenticated, want %d", a.done, want)
		}
		closeController(t, c)
		auth.ControllerSecret = a.ctrl
	}
	f = newFakeTarget() // it doesn't support authentication
	if _, err := Connect(t.Context(), authConfig(f, auth)); !errors.Is(err, nvme.StatusInvalidOpcode) || errors.Is(err, ErrAuthentication) {
		t.Errorf("a controller that can't prove itself: %v", err)
	}
	f.nqn = nvme.DiscoveryNQN
	f.identity.CNTRLTYPE = nvme.ControllerDiscovery
	cfg := authConfig(f, auth)
	cfg.SubNQN = nvme.DiscoveryNQN
	c, err := Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeController(t, c)
}

// TestReauthentication: with the same secret and with another; a failure ends the controller.
func TestReauthentication(t *testing.T) {
	f := newFakeTarget()
	a := newAuthController(t, f)
	c, err := Connect(t.Context(), authConfig(f, &Authentication{Secret: a.secret}))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Authenticate(t.Context(), nil); err != nil || a.done != 6 {
		t.Errorf("%v, %d transactions", err, a.done)
	}
	a.mu.Lock()
	a.secret = testSecret(t)
	a.mu.Unlock()
	if err := c.Authenticate(t.Context(), &Authentication{Secret: a.secret, ControllerSecret: a.ctrl}); err != nil || a.done != 9 {
		t.Errorf("%v, %d transactions", err, a.done)
	}
	if err := c.Authenticate(t.Context(), nil); err != nil || a.done != 12 {
		t.Errorf("again with the other secret: %v, %d transactions", err, a.done)
	}
	if in := c.Config().Authentication; in == nil || !in.Secret.Equal(a.secret) {
		t.Error("the configuration in effect has the old secret")
	}
	if err := c.Authenticate(t.Context(), &Authentication{}); !errors.Is(err, ErrConfig) || c.Err() != nil {
		t.Errorf("without a secret: %v, %v", err, c.Err())
	}
	err = c.Authenticate(t.Context(), &Authentication{Secret: testSecret(t)})
	if !errors.Is(err, nvme.AuthFailed) {
		t.Error(err)
	}
	<-c.Done()
	if !errors.Is(c.Err(), ErrAuthentication) || !errors.Is(c.Err(), ErrLost) {
		t.Error(c.Err())
	}
	_ = c.Close()
	plain := newFakeTarget()
	p, err := Connect(t.Context(), authConfig(plain, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Authenticate(t.Context(), nil); !errors.Is(err, ErrConfig) {
		t.Errorf("nothing to authenticate with: %v", err)
	}
	closeController(t, p)
}

// TestAuthenticateAtOnce: concurrent calls of Authenticate don't disturb each other.
func TestAuthenticateAtOnce(t *testing.T) {
	f := newFakeTarget()
	a := newAuthController(t, f)
	c, err := Connect(t.Context(), authConfig(f, &Authentication{Secret: a.secret, ControllerSecret: a.ctrl}))
	if err != nil {
		t.Fatal(err)
	}
	defer closeController(t, c)
	before := a.done
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := c.Authenticate(t.Context(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := a.done - before; got != 4*before {
		t.Errorf("%d transactions, want %d", got, 4*before)
	}
	c.authTurn <- struct{}{} // another call takes long
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Authenticate(ctx, nil); !errors.Is(err, context.Canceled) || c.Err() != nil {
		t.Errorf("given up: %v, %v", err, c.Err())
	}
	<-c.authTurn
	for range 20 { // nobody holds it: either case may be chosen
		if err := c.Authenticate(ctx, nil); !errors.Is(err, context.Canceled) || c.Err() != nil {
			t.Fatalf("given up before: %v, %v", err, c.Err())
		}
	}
}

// TestAuthenticateWhileClosing: a controller that is shut down during authentication still does so in an orderly
// way.
func TestAuthenticateWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeTarget()
		a := newAuthController(t, f)
		c, err := Connect(t.Context(), authConfig(f, &Authentication{Secret: a.secret}))
		if err != nil {
			t.Fatal(err)
		}
		var down atomic.Bool
		f.setHook(func(q *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			if r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCPropertyGet && !down.Load() {
				return answered // CSTS doesn't report a shutdown yet
			}
			return a.hook(q, r, cqe)
		})
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		if err := c.Authenticate(t.Context(), nil); !errors.Is(err, ErrClosed) || errors.Is(err, ErrLost) {
			t.Errorf("authentication ended with %v, want %v", err, ErrClosed)
		}
		if err := c.Err(); err != nil {
			t.Errorf("it ended before it had shut down: %v", err)
		}
		down.Store(true)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// TestAuthenticationInterrupted: a connection that breaks, or a caller that gives up, is not a failure of
// authentication, and may be retried.
func TestAuthenticationInterrupted(t *testing.T) {
	f := newFakeTarget()
	a := newAuthController(t, f)
	a.alter = func(_ nvme.AuthKind, b []byte) []byte {
		f.queues[0].fail(errors.New("unplugged"))
		return b
	}
	_, err := Connect(t.Context(), authConfig(f, &Authentication{Secret: a.secret}))
	var ce *ConnectError
	if errors.Is(err, ErrAuthentication) || !errors.Is(err, ErrLost) || !errors.As(err, &ce) || ce.Stage != "authentication" {
		t.Errorf("unplugged: %v", err)
	}
	f = newFakeTarget()
	a = newAuthController(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	a.alter = func(_ nvme.AuthKind, b []byte) []byte {
		cancel()
		return b
	}
	if _, err = Connect(ctx, authConfig(f, &Authentication{Secret: a.secret})); errors.Is(err, ErrAuthentication) || !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}

// TestReauthenticationInterrupted: a reauthentication whose commands a stopping target gives back ends with the loss of
// the controller, like everything else then.
func TestReauthenticationInterrupted(t *testing.T) {
	f := newFakeTarget()
	a := newAuthController(t, f)
	c, err := Connect(t.Context(), authConfig(f, &Authentication{Secret: a.secret}))
	if err != nil {
		t.Fatal(err)
	}
	f.setHook(func(q *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		if r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCAuthReceive {
			cqe.SetStatus(nvme.StatusAbortSQDeleted)
			return answered
		}
		return a.hook(q, r, cqe)
	})
	err = c.Authenticate(t.Context(), nil)
	if !errors.Is(err, ErrLost) || !errors.Is(err, nvme.StatusAbortSQDeleted) || errors.Is(err, ErrAuthentication) {
		t.Errorf("given back: %v", err)
	}
	if c.Err() == nil || c.Err().Error() != err.Error() {
		t.Errorf("it ended with %v", c.Err())
	}
	_ = c.Close()
}

func TestAuthenticationConfig(t *testing.T) {
	s := testSecret(t)
	for name, a := range map[string]*Authentication{
		"no secret": {ControllerSecret: s},
		"empty":     {Secret: &dhchap.Secret{}},
		"empty too": {Secret: s, ControllerSecret: &dhchap.Secret{}},
		"the same":  {Secret: s, ControllerSecret: s},
		"hash":      {Secret: s, Hashes: []nvme.AuthHash{0}},
		"group":     {Secret: s, DHGroups: []nvme.DHGroup{9}},
	} {
		cfg := authConfig(newFakeTarget(), a)
		if err := cfg.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "Authentication: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
