package target

import (
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// put changes one byte of a message.
func put(kind nvme.AuthKind, at int, v byte) func(nvme.AuthKind, []byte) []byte {
	return func(k nvme.AuthKind, b []byte) []byte {
		if k == kind {
			b[at] = v
		}
		return b
	}
}

// instead sends another message in place of one.
func instead(kind nvme.AuthKind, b []byte) func(nvme.AuthKind, []byte) []byte {
	return func(k nvme.AuthKind, was []byte) []byte {
		if k == kind {
			return b
		}
		return was
	}
}

// altered makes f change the host's messages.
func altered(f func(nvme.AuthKind, []byte) []byte) func(*authHost, *Target) {
	return func(h *authHost, _ *Target) { h.alter = f }
}

// replyValue puts a value of Diffie-Hellman into the reply.
func replyValue(v ...byte) func(*authHost, *Target) {
	return altered(func(k nvme.AuthKind, b []byte) []byte {
		if k == nvme.AuthReplyMessage {
			clear(b[len(b)-256:])
			copy(b[len(b)-len(v):], v)
		}
		return b
	})
}

// authFault is how a host's authentication goes wrong, and the explanation that the specification has for it.
type authFault struct {
	name string
	how  func(*authHost, *Target)
	want nvme.AuthExplanation
}

// unknownHosts are faults of a host that doesn't know the secrets.
var unknownHosts = []authFault{
	{"wrong secret", func(h *authHost, _ *Target) { h.secret = testSecret(h.c.t) }, nvme.AuthFailed},
	{"response changed", altered(func(k nvme.AuthKind, b []byte) []byte {
		if k == nvme.AuthReplyMessage {
			b[16] ^= 1
		}
		return b
	}), nvme.AuthFailed},
	{"no controller secret", func(h *authHost, tg *Target) {
		a := *tg.auth.Load()
		a.Hosts = map[string]HostSecrets{testHost: {Host: h.secret}}
		if err := tg.SetAuthentication(&a); err != nil {
			h.c.t.Error(err)
		}
		h.ctrl = testSecret(h.c.t)
	}, nvme.AuthFailed},
	{"our own challenge", func(h *authHost, _ *Target) {
		h.ctrl = testSecret(h.c.t)
		h.alter = func(k nvme.AuthKind, b []byte) []byte {
			if k == nvme.AuthReplyMessage {
				copy(b[16+64:], h.chosen.CVAL)
			}
			return b
		}
	}, nvme.AuthFailed},
}

// wrongOffers are faults of AUTH_Negotiate.
var wrongOffers = []authFault{
	{"hash functions unknown", func(h *authHost, _ *Target) { h.offer.Hash = []nvme.AuthHash{4, 0xe0} }, nvme.AuthHashUnusable},
	{"groups unknown", func(h *authHost, _ *Target) { h.offer.DH = []nvme.DHGroup{6, 0xff} }, nvme.AuthDHGroupUnusable},
	{"group not allowed", func(h *authHost, _ *Target) { h.offer.DH = []nvme.DHGroup{nvme.DHFFDHE8192} }, nvme.AuthDHGroupUnusable},
	{"secure channel", func(h *authHost, _ *Target) { h.offer.SCC = 1 }, nvme.AuthSecureChannel},
	{"another protocol", altered(put(nvme.AuthNegotiateMessage, 8, 2)), nvme.AuthProtocolUnusable},
	{"no protocol", altered(put(nvme.AuthNegotiateMessage, 7, 0)), nvme.AuthIncorrectPayload},
	{"too many hash functions", altered(put(nvme.AuthNegotiateMessage, 10, 31)), nvme.AuthIncorrectPayload},
}

// wrongMessages are faults of the later messages, and of the messages' order.
var wrongMessages = []authFault{
	{"another transaction", altered(put(nvme.AuthReplyMessage, 4, 10)), nvme.AuthIncorrectPayload},
	{"length of another hash", altered(put(nvme.AuthReplyMessage, 6, 32)), nvme.AuthIncorrectPayload},
	{"no DH value", altered(func(k nvme.AuthKind, b []byte) []byte {
		if k == nvme.AuthReplyMessage {
			b[10], b[11] = 0, 0
		}
		return b
	}), nvme.AuthIncorrectPayload},
	{"DH value 0", replyValue(), nvme.AuthIncorrectPayload},
	{"DH value 1", replyValue(1), nvme.AuthIncorrectPayload},
	{"challenge of sequence number 0", func(h *authHost, _ *Target) {
		h.ctrl = testSecret(h.c.t)
		h.alter = put(nvme.AuthReplyMessage, 12, 0)
	}, nvme.AuthIncorrectPayload},
	{"reply first", altered(instead(nvme.AuthNegotiateMessage, (&nvme.AuthReply{TID: 9, RVAL: make([]byte, 64)}).AppendTo(nil))), nvme.AuthIncorrectMessage},
	{"success first", altered(instead(nvme.AuthNegotiateMessage, (&nvme.AuthSuccess2{TID: 9}).AppendTo(nil))), nvme.AuthIncorrectMessage},
	{"rejection first", altered(instead(nvme.AuthNegotiateMessage, rejection())), nvme.AuthIncorrectMessage},
	{"short reply", altered(func(k nvme.AuthKind, b []byte) []byte {
		if k == nvme.AuthReplyMessage {
			b = b[:16]
		}
		return b
	}), nvme.AuthIncorrectPayload},
	{"negotiate twice", altered(instead(nvme.AuthReplyMessage, (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil))), nvme.AuthIncorrectMessage},
	{"a message of the controller", altered(put(nvme.AuthReplyMessage, 1, 3)), nvme.AuthIncorrectMessage},
	{"a message of another protocol", altered(put(nvme.AuthReplyMessage, 0, 5)), nvme.AuthIncorrectMessage},
}

// TestAuthenticationFails: each wrong message, and each order of messages that the protocol doesn't allow, is answered
// with AUTH_Failure1 and the explanation that the specification has for it, and then the connection ends.
func TestAuthenticationFails(t *testing.T) {
	for _, c := range slices.Concat(unknownHosts, wrongOffers, wrongMessages) {
		t.Run(c.name, c.test)
	}
}

func (c authFault) test(t *testing.T) {
	tg, s := demand(t)
	conn, _ := connectUnknown(t, tg, 0)
	h := newAuthHost(conn, s)
	c.how(h, tg)
	if err := h.run(); !errors.Is(err, c.want) {
		t.Errorf("%v, want %v", err, c.want)
	}
	if h.success.TID != 0 {
		t.Error("the controller has told such a host its own response")
	}
	conn.waitClosed()
	if n := tg.Snapshot().Transports[0]; !errors.Is(conn.reason, ErrAuthentication) || n.Authentications != 0 || n.AuthFailures != 1 {
		t.Errorf("it ended with %v; %d authentications, %d failures", conn.reason, n.Authentications, n.AuthFailures)
	}
}

// TestSecretTakenAway: a host whose secret is taken away after Connect has demanded its proof isn't told that it failed,
// which would make it give up: it connects again, by the new rules.
func TestSecretTakenAway(t *testing.T) {
	for name, rules := range map[string]*Authentication{
		"turned off":              nil,
		"optional":                {Hosts: map[string]HostSecrets{"nqn.2024-01.com.example:other": {Host: testSecret(t)}}, Optional: true},
		"for other hosts, demand": {Hosts: map[string]HostSecrets{"nqn.2024-01.com.example:other": {Host: testSecret(t)}}},
	} {
		t.Run(name, func(t *testing.T) {
			tg, s := demand(t)
			c, _ := connectUnknown(t, tg, 0)
			if err := tg.SetAuthentication(rules); err != nil {
				t.Fatal(err)
			}
			b := newAuthHost(c, s).offer.AppendTo(nil)
			c.fails(authSend(len(b)), b, authDenied)
			c.waitClosed()
			if n := tg.Snapshot().Transports[0]; !errors.Is(c.reason, ErrAuthentication) || n.AuthFailures != 0 {
				t.Errorf("it ended with %v; %d failures", c.reason, n.AuthFailures)
			}
		})
	}
}

// TestAuthenticationRejected: a host that can't authenticate the controller says so, and is disconnected.
func TestAuthenticationRejected(t *testing.T) {
	tg, s := demand(t)
	c, _ := connectUnknown(t, tg, 0)
	h := newAuthHost(c, s)
	h.ctrl = testSecret(t) // not the controller's
	if err := h.run(); !errors.Is(err, nvme.AuthFailed) {
		t.Error(err)
	}
	c.waitClosed()
	if !errors.Is(c.reason, ErrAuthentication) || tg.Snapshot().Transports[0].AuthFailures != 1 {
		t.Errorf("it ended with %v", c.reason)
	}
}

// rejection is AUTH_Failure2.
func rejection() []byte {
	return (&nvme.AuthFailure{ByHost: true, TID: 9, Explanation: nvme.AuthFailed}).AppendTo(nil)
}

// TestChallengeRejected: a host that gives up after it has seen the challenge is disconnected as well, without being
// told why.
func TestChallengeRejected(t *testing.T) {
	tg, s := demand(t)
	c, _ := connectUnknown(t, tg, 0)
	h := newAuthHost(c, s)
	h.send(nvme.AuthNegotiateMessage, negotiation())
	if err := h.expect(h.chosen.Parse); err != nil {
		t.Fatal(err)
	}
	h.send(nvme.AuthFailure2Message, rejection())
	c.waitClosed()
	if n := tg.Snapshot().Transports[0].AuthFailures; n != 1 || !errors.Is(c.reason, ErrAuthentication) {
		t.Errorf("it ended with %v; %d failures", c.reason, n)
	}
}

// TestLastMessageWrong: the host's last message is checked like the others: until it is right, nothing is executed.
func TestLastMessageWrong(t *testing.T) {
	wrongReason := rejection()
	wrongReason[6] = 2
	for name, last := range map[string][]byte{"short": (&nvme.AuthSuccess2{TID: 9}).AppendTo(nil)[:8], "rejection for no known reason": wrongReason} {
		tg, s := demand(t)
		c, _ := connectUnknown(t, tg, 0)
		h := newAuthHost(c, s)
		h.ctrl, h.alter = s.Controller, instead(nvme.AuthSuccess2Message, last)
		if err := h.run(); err != nil {
			t.Fatal(err)
		}
		c.fails(getProperty(nvme.PropCAP), nil, authRequired)
		var f nvme.AuthFailure
		if err := f.Parse(h.receive()); err != nil || f.Explanation != nvme.AuthIncorrectPayload {
			t.Errorf("%s: %v, %v", name, f.Explanation, err)
		}
		c.waitClosed()
	}
}

// TestAuthenticationOutOfTurn: it is an error to ask for a message when one has to be sent, and to send one when one
// has to be fetched.
func TestAuthenticationOutOfTurn(t *testing.T) {
	tg, s := demand(t)
	for name, f := range map[string]func(h *authHost) []byte{
		"receive first": func(h *authHost) []byte { return h.receive() },
		"receive twice": func(h *authHost) []byte {
			h.send(nvme.AuthNegotiateMessage, (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil))
			if err := h.expect(h.chosen.Parse); err != nil {
				t.Fatal(err)
			}
			return h.receive()
		},
		"send twice": func(h *authHost) []byte {
			b := (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil)
			h.send(nvme.AuthNegotiateMessage, b)
			h.send(nvme.AuthNegotiateMessage, b)
			return h.receive()
		},
		"after a failure": func(h *authHost) []byte {
			h.send(nvme.AuthSuccess2Message, (&nvme.AuthSuccess2{TID: 9}).AppendTo(nil))
			h.send(nvme.AuthNegotiateMessage, (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil))
			return h.receive()
		},
		"a byte": func(h *authHost) []byte { h.send(nvme.AuthNegotiateMessage, []byte{0}); return h.receive() },
	} {
		c, _ := connectUnknown(t, tg, 0)
		var got nvme.AuthFailure
		if err := got.Parse(f(newAuthHost(c, s))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := nvme.AuthIncorrectMessage
		if name == "a byte" {
			want = nvme.AuthIncorrectPayload
		}
		if got.Explanation != want {
			t.Errorf("%s: %v", name, got.Explanation)
		}
		c.waitClosed()
	}
}

// TestAuthenticationFields: commands with wrong fields fail, and change nothing.
func TestAuthenticationFields(t *testing.T) {
	tg, s := demand(t)
	c, _ := connectUnknown(t, tg, 0)
	with := func(cmd nvme.Command, at int, v byte) nvme.Command { cmd[at] = v; return cmd }
	const invalid = nvme.StatusInvalidField | dnr
	for _, cmd := range []nvme.Command{authSend(72), authReceive(72)} {
		for _, at := range []int{nvme.AuthOffSECP, nvme.AuthOffSPSP0, nvme.AuthOffSPSP1} {
			c.fails(with(cmd, at, 0), make([]byte, 72), invalid)
		}
		c.fails(cmd, make([]byte, 71), nvme.StatusSGLLengthInvalid|dnr)
	}
	c.fails(authSend(0), nil, invalid)
	c.fails(authSend(nvme.MaxAuthMessage+1), make([]byte, nvme.MaxAuthMessage+1), invalid)
	c.fails(authReceive(0), nil, invalid)
	c.fails(authReceive(nvme.AuthFailureSize-1), make([]byte, nvme.AuthFailureSize-1), invalid)
	c.fails(command(func(c *nvme.Command) { c.SetAuthReceive(1 << 31) }), nil, invalid)
	h := newAuthHost(c, s)
	longest := make([]byte, nvme.MaxAuthMessage) // with zeroes after the message
	copy(longest, negotiation())
	h.send(nvme.AuthNegotiateMessage, longest)
	n := nvme.AuthChallengeSize(nvme.AuthSHA512, nvme.DHFFDHE2048)
	c.fails(authReceive(n-1), make([]byte, n-1), invalid) // no room for the challenge
	c.must(authReceive(n), make([]byte, n))
	c.hangUp(nil)
}

// TestAuthenticationOneAtATime: a host that doesn't wait for a response gets an error.
func TestAuthenticationOneAtATime(t *testing.T) {
	tg, s := demand(t)
	c, _ := connectUnknown(t, tg, 0)
	free := occupy(tg) // others compute
	b := (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil)
	first := c.start(authSend(len(b)), b)
	c.fails(authSend(len(b)), b, nvme.StatusCommandSequence)
	c.fails(authReceive(4096), make([]byte, 4096), nvme.StatusCommandSequence)
	free()
	if st := first.wait().Status(); st != nvme.StatusSuccess {
		t.Errorf("status %#x", uint16(st))
	}
	h := newAuthHost(c, s)
	if err := h.expect(h.chosen.Parse); err != nil {
		t.Error(err)
	}
	c.hangUp(nil)
}

// fuzzPatience is how long FuzzAuthentication waits for an answer.
const fuzzPatience = 10 * time.Second

// doWithin is do without t.Helper and another timer.
func (c *fakeConn) doWithin(patience *time.Timer, cmd nvme.Command, data []byte) {
	answered := c.start(cmd, data).done
	for range 2 { // a machine that is halted meanwhile uses up the first
		patience.Reset(fuzzPatience)
		select {
		case <-answered:
			return
		case <-patience.C:
		}
	}
	c.t.Fatalf("command %#x was not answered", cmd[0])
}

// authInput has a length before each message; an empty message stands for AUTH_Receive.
func authInput(messages ...[]byte) (all []byte) {
	for _, m := range messages {
		all = append(binary.LittleEndian.AppendUint16(all, uint16(len(m))), m...)
	}
	return all
}

// FuzzAuthentication: without the secret, no sequence of messages authenticates a host, and each command is answered.
func FuzzAuthentication(tf *testing.F) {
	f := fuzzing.New(tf)
	negotiate := (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil)
	reply := (&nvme.AuthReply{TID: 9, RVAL: make([]byte, 64), CVALID: true, SEQNUM: 1}).AppendTo(nil)
	success := (&nvme.AuthSuccess2{TID: 9}).AppendTo(nil)
	f.Add(uint8(0), authInput(negotiate, nil, reply, nil, success))
	f.Add(uint8(0), authInput(negotiate, nil, success))
	f.Add(uint8(0), authInput(success, reply, nil))
	f.Worlds(func(t *testing.T, _ uint8, inputs iter.Seq[[]byte]) {
		tg, _ := demand(t, func(a *Authentication) { a.DHGroups = []nvme.DHGroup{nvme.DHNull} })
		var c *fakeConn
		memory, patience := make([]byte, 4096), time.NewTimer(fuzzPatience)
		for b := range inputs {
			if c == nil {
				c, _ = connectUnknown(t, tg, 0)
			}
			ended := false
			for i := 0; len(b) >= 2 && i < 16; i++ {
				if ended = !c.stay(); ended {
					break
				}
				n := min(int(binary.LittleEndian.Uint16(b)), len(b)-2)
				message := b[2 : 2+n]
				b = b[2+n:]
				if n == 0 {
					c.doWithin(patience, authReceive(len(memory)), memory)
				} else {
					c.doWithin(patience, authSend(n), message)
				}
				c.wg.Done()
				if s := c.q.state.Load(); s != queueAuthenticating && s != queueDown {
					t.Fatalf("the queue is in state %d", s)
				}
			}
			if ended || c.q.state.Load() == queueDown {
				c.hangUp(nil)
				c = nil
			}
		}
		if c != nil {
			c.hangUp(nil)
		}
	})
}
