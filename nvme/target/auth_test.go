package target

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
)

func testSecret(t testing.TB) *dhchap.Secret {
	t.Helper()
	s, err := dhchap.Generate(nvme.AuthSHA256, 32)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// demand makes a target that demands authentication of the test host, over one namespace.
func demand(t testing.TB, change ...func(*Authentication)) (*Target, HostSecrets) {
	t.Helper()
	s := HostSecrets{Host: testSecret(t), Controller: testSecret(t)}
	a := &Authentication{Hosts: map[string]HostSecrets{testHost: s}, DHGroups: []nvme.DHGroup{nvme.DHFFDHE2048, nvme.DHNull}}
	for _, f := range change {
		f(a)
	}
	return newTargetWith(t, func(c *Config) { c.Authentication = a }, memVolume(t, 1<<20, 4096)), s
}

// authHost is the host's side of DH-HMAC-CHAP, which can be told to go wrong.
type authHost struct {
	c       *fakeConn
	secret  *dhchap.Secret
	ctrl    *dhchap.Secret // nil: one way
	tid     uint16
	offer   nvme.AuthNegotiate
	alter   func(k nvme.AuthKind, b []byte) []byte // changes what is sent; nil: nothing
	chosen  nvme.AuthChallenge
	success nvme.AuthSuccess1
}

func newAuthHost(c *fakeConn, s HostSecrets) *authHost {
	return &authHost{c: c, secret: s.Host, tid: 9, offer: nvme.AuthNegotiate{Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}}
}

func authSend(n int) nvme.Command {
	return command(func(c *nvme.Command) { c.SetAuthSend(uint32(n)) })
}

func authReceive(n int) nvme.Command {
	return command(func(c *nvme.Command) { c.SetAuthReceive(uint32(n)) })
}

func (h *authHost) send(k nvme.AuthKind, b []byte) {
	h.c.t.Helper()
	if h.alter != nil {
		b = h.alter(k, b)
	}
	h.c.must(authSend(len(b)), b)
}

func (h *authHost) receive() []byte {
	h.c.t.Helper()
	b := bytes.Repeat([]byte{0xee}, 4096)
	h.c.must(authReceive(len(b)), b)
	if kind, _, _ := nvme.AuthHead(b); kind == nvme.AuthFailure1Message && slices.ContainsFunc(b[nvme.AuthFailureSize:], func(x byte) bool { return x != 0 }) {
		h.c.t.Error("there is something after the message")
	}
	return b
}

// expect receives a message; AUTH_Failure1 instead of it is an error.
func (h *authHost) expect(parse func([]byte) error) error {
	h.c.t.Helper()
	b := h.receive()
	var f nvme.AuthFailure
	if kind, _, _ := nvme.AuthHead(b); kind == nvme.AuthFailure1Message {
		if err := f.Parse(b); err != nil || f.TID != h.tid {
			h.c.t.Errorf("AUTH_Failure1 of transaction %d, %v", f.TID, err)
		}
		return f.Explanation
	}
	if err := parse(b); err != nil {
		h.c.t.Fatalf("the target sent a wrong message: %v", err)
	}
	return nil
}

// run runs a transaction. The error is an nvme.AuthExplanation.
func (h *authHost) run() error {
	h.c.t.Helper()
	h.offer.TID = h.tid
	h.send(nvme.AuthNegotiateMessage, h.offer.AppendTo(nil))
	if err := h.expect(h.chosen.Parse); err != nil {
		return err
	}
	tx := dhchap.Transaction{Hash: h.chosen.Hash, TID: h.tid, HostNQN: testHost, SubNQN: testNQN}
	x := dhchap.NewExchange(h.chosen.DH, h.chosen.Hash)
	var err error
	if tx.SessionKey, err = x.SessionKey(h.chosen.DHV); err != nil {
		h.c.t.Fatal(err)
	}
	r := nvme.AuthReply{TID: h.tid, RVAL: tx.HostResponse(h.secret, h.chosen.CVAL, h.chosen.SEQNUM), DHV: x.Public(), SEQNUM: 77}
	if h.ctrl != nil {
		r.CVALID, r.CVAL = true, dhchap.Challenge(h.chosen.Hash)
	}
	h.send(nvme.AuthReplyMessage, r.AppendTo(nil))
	if err := h.expect(func(b []byte) error { return h.success.Parse(b, h.chosen.Hash) }); err != nil || h.ctrl == nil {
		return err
	}
	if !h.success.RVALID || !dhchap.Equal(h.success.RVAL, tx.ControllerResponse(h.ctrl, r.CVAL, r.SEQNUM)) {
		f := nvme.AuthFailure{ByHost: true, TID: h.tid, Explanation: nvme.AuthFailed}
		h.send(nvme.AuthFailure2Message, f.AppendTo(nil))
		return nvme.AuthFailed
	}
	h.send(nvme.AuthSuccess2Message, (&nvme.AuthSuccess2{TID: h.tid}).AppendTo(nil))
	return nil
}

const authRequired = nvme.StatusAuthenticationRequired | dnr

// connectUnknown connects the admin queue of a host that has to authenticate itself.
func connectUnknown(t testing.TB, tg *Target, kato uint32) (*fakeConn, uint16) {
	t.Helper()
	c := dial(t, tg)
	res := nvme.ConnectResult(c.must(connectCommand(0, 31, kato), connectData(t, nvme.CNTLIDDynamic, testNQN)).DW0())
	if res&^nvme.ConnectResult(0xffff) != nvme.ConnectATR {
		t.Fatalf("result of Connect %#x, want ATR and a controller", uint32(res))
	}
	return c, res.CNTLID()
}

// TestAuthentication: with each hash function and group, one way and both: nothing is executed
// before it, and everything after it, on the admin queue and on an I/O queue.
func TestAuthentication(t *testing.T) {
	for _, g := range nvme.DHGroups() {
		for _, h := range nvme.AuthHashes() {
			for _, both := range []bool{false, true} {
				if g > nvme.DHFFDHE2048 && (h != nvme.AuthSHA384 || !both || g > nvme.DHFFDHE3072) {
					continue // it takes long, and package dhchap tests the mathematics
				}
				t.Run(fmt.Sprintf("%v-%v-%v", g, h, both), func(t *testing.T) {
					tg, s := demand(t, func(a *Authentication) { a.Hashes, a.DHGroups = []nvme.AuthHash{h}, []nvme.DHGroup{g} })
					if !both {
						s.Controller = nil
					}
					testAuthentication(t, tg, s, h, g)
				})
			}
		}
	}
}

func testAuthentication(t *testing.T, tg *Target, s HostSecrets, h nvme.AuthHash, g nvme.DHGroup) {
	admin, id := connectUnknown(t, tg, 0)
	admin.fails(getProperty(nvme.PropCAP), nil, authRequired)
	admin.fails(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil, authRequired)
	admin.fails(keepAlive, nil, authRequired)
	host := newAuthHost(admin, s)
	host.ctrl = s.Controller
	if err := host.run(); err != nil || host.chosen.Hash != h || host.chosen.DH != g || host.chosen.SEQNUM == 0 {
		t.Fatalf("%v, %v, S1 %d: %v", host.chosen.Hash, host.chosen.DH, host.chosen.SEQNUM, err)
	}
	admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)

	io := dial(t, tg)
	res := nvme.ConnectResult(io.must(connectCommand(1, 127, 0), connectData(t, id, testNQN)).DW0())
	if res != nvme.ConnectATR|nvme.ConnectResult(id) {
		t.Errorf("result of Connect %#x", uint32(res))
	}
	read := ioCommand(nvme.OpRead, 0, 1, 0)
	io.fails(read, make([]byte, 4096), authRequired)
	io.fails(command(func(c *nvme.Command) { c.SetDisconnect() }), nil, authRequired)
	host = newAuthHost(io, s)
	host.ctrl = s.Controller
	if err := host.run(); err != nil {
		t.Fatal(err)
	}
	io.must(read, make([]byte, 4096))
	n := tg.Snapshot()
	if n.Transports[0].Authentications != 2 || n.Transports[0].AuthFailures != 0 {
		t.Errorf("%d authentications, %d failures", n.Transports[0].Authentications, n.Transports[0].AuthFailures)
	}
	a := n.Subsystems[0].Controllers[0].Auth
	if a == nil || a.Hash != h || a.DHGroup != g || a.Bidirectional != (s.Controller != nil) {
		t.Errorf("the snapshot says %+v", a)
	}
	io.hangUp(nil)
	admin.hangUp(nil)
}

// TestAuthenticationDefaults: what is chosen where a host offers everything and the user nothing.
func TestAuthenticationDefaults(t *testing.T) {
	tg, s := demand(t, func(a *Authentication) { a.DHGroups = nil })
	c, _ := connectUnknown(t, tg, 0)
	h := newAuthHost(c, s)
	if err := h.run(); err != nil || h.chosen.Hash != nvme.AuthSHA512 || h.chosen.DH != nvme.DHFFDHE3072 {
		t.Errorf("%v, %v, %v", h.chosen.Hash, h.chosen.DH, err)
	}
}

// put changes one byte of a message.
func put(kind nvme.AuthKind, at int, v byte) func(nvme.AuthKind, []byte) []byte {
	return func(k nvme.AuthKind, b []byte) []byte {
		if k == kind {
			b[at] = v
		}
		return b
	}
}

// instead sends another message in the place of one.
func instead(kind nvme.AuthKind, b []byte) func(nvme.AuthKind, []byte) []byte {
	return func(k nvme.AuthKind, was []byte) []byte {
		if k == kind {
			return b
		}
		return was
	}
}

// TestAuthenticationFails: each wrong message, and each order of messages that isn't the
// protocol's, is answered with AUTH_Failure1 and the explanation that the specification has for
// it, and then the connection ends.
func TestAuthenticationFails(t *testing.T) {
	const negotiate, reply = nvme.AuthNegotiateMessage, nvme.AuthReplyMessage
	wrong := func(h *authHost, _ *Target) { h.secret = testSecret(h.c.t) }
	alter := func(f func(nvme.AuthKind, []byte) []byte) func(*authHost, *Target) {
		return func(h *authHost, _ *Target) { h.alter = f }
	}
	value := func(v ...byte) func(*authHost, *Target) { // of Diffie-Hellman in the reply
		return alter(func(k nvme.AuthKind, b []byte) []byte {
			if k == reply {
				clear(b[len(b)-256:])
				copy(b[len(b)-len(v):], v)
			}
			return b
		})
	}
	for _, c := range []struct {
		name string
		how  func(*authHost, *Target)
		want nvme.AuthExplanation
	}{
		{"wrong secret", wrong, nvme.AuthFailed},
		{"response changed", alter(put(reply, 16, 0)), nvme.AuthFailed},
		{"secret of another name", func(h *authHost, tg *Target) {
			a := *tg.auth.Load()
			a.Hosts, a.Optional = map[string]HostSecrets{"nqn.2024-01.com.example:other": a.Hosts[testHost]}, true
			if err := tg.SetAuthentication(&a); err != nil {
				t.Error(err)
			}
		}, nvme.AuthFailed},
		{"authentication was turned off", func(_ *authHost, tg *Target) { _ = tg.SetAuthentication(nil) }, nvme.AuthFailed},
		{"no controller secret", func(h *authHost, tg *Target) {
			a := *tg.auth.Load()
			a.Hosts = map[string]HostSecrets{testHost: {Host: h.secret}}
			if err := tg.SetAuthentication(&a); err != nil {
				t.Error(err)
			}
			h.ctrl = testSecret(t)
		}, nvme.AuthFailed},
		{"our own challenge", func(h *authHost, _ *Target) {
			h.ctrl = testSecret(h.c.t)
			h.alter = func(k nvme.AuthKind, b []byte) []byte {
				if k == reply {
					copy(b[16+64:], h.chosen.CVAL)
				}
				return b
			}
		}, nvme.AuthFailed},
		{"hash functions unknown", func(h *authHost, _ *Target) { h.offer.Hash = []nvme.AuthHash{4, 0xe0} }, nvme.AuthHashUnusable},
		{"groups unknown", func(h *authHost, _ *Target) { h.offer.DH = []nvme.DHGroup{6, 0xff} }, nvme.AuthDHGroupUnusable},
		{"group not allowed", func(h *authHost, _ *Target) { h.offer.DH = []nvme.DHGroup{nvme.DHFFDHE8192} }, nvme.AuthDHGroupUnusable},
		{"secure channel", func(h *authHost, _ *Target) { h.offer.SCC = 1 }, nvme.AuthSecureChannel},
		{"another protocol", alter(put(negotiate, 8, 2)), nvme.AuthProtocolUnusable},
		{"no protocol", alter(put(negotiate, 7, 0)), nvme.AuthIncorrectPayload},
		{"too many hash functions", alter(put(negotiate, 10, 31)), nvme.AuthIncorrectPayload},
		{"another transaction", alter(put(reply, 4, 10)), nvme.AuthIncorrectPayload},
		{"length of another hash", alter(put(reply, 6, 32)), nvme.AuthIncorrectPayload},
		{"no DH value", alter(func(k nvme.AuthKind, b []byte) []byte {
			if k == reply {
				b[10], b[11] = 0, 0
			}
			return b
		}), nvme.AuthIncorrectPayload},
		{"DH value 0", value(), nvme.AuthIncorrectPayload},
		{"DH value 1", value(1), nvme.AuthIncorrectPayload},
		{"challenge of sequence number 0", func(h *authHost, _ *Target) {
			h.ctrl = testSecret(h.c.t)
			h.alter = put(reply, 12, 0)
		}, nvme.AuthIncorrectPayload},
		{"reply first", alter(instead(negotiate, (&nvme.AuthReply{TID: 9, RVAL: make([]byte, 64)}).AppendTo(nil))), nvme.AuthIncorrectMessage},
		{"success first", alter(instead(negotiate, (&nvme.AuthSuccess2{TID: 9}).AppendTo(nil))), nvme.AuthIncorrectMessage},
		{"negotiate twice", alter(instead(reply, (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil))), nvme.AuthIncorrectMessage},
		{"a message of the controller", alter(put(reply, 1, 3)), nvme.AuthIncorrectMessage},
		{"a message of another protocol", alter(put(reply, 0, 5)), nvme.AuthIncorrectMessage},
	} {
		t.Run(c.name, func(t *testing.T) {
			tg, s := demand(t)
			conn, _ := connectUnknown(t, tg, 0)
			h := newAuthHost(conn, s)
			c.how(h, tg)
			if err := h.run(); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			conn.waitClosed()
			if n := tg.Snapshot().Transports[0]; !errors.Is(conn.reason, ErrAuthentication) || n.Authentications != 0 || n.AuthFailures != 1 {
				t.Errorf("it ended with %v; %d authentications, %d failures", conn.reason, n.Authentications, n.AuthFailures)
			}
		})
	}
}

// TestAuthenticationRejected: a host that doesn't know the controller says so, and is gone.
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

// TestAuthenticationOutOfTurn: to ask for a message where one has to be sent is wrong, too; to send
// where one has to be fetched as well.
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

// TestAuthenticationFields: wrong commands are errors themselves, and change nothing.
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
	h.send(nvme.AuthNegotiateMessage, (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil))
	n := nvme.AuthChallengeSize(nvme.AuthSHA512, nvme.DHFFDHE2048)
	c.fails(authReceive(n-1), make([]byte, n-1), invalid) // no room for the challenge
	c.must(authReceive(n), make([]byte, n))
	c.hangUp(nil)
}

// TestAuthenticationOneAtATime: a host that doesn't wait is told so.
func TestAuthenticationOneAtATime(t *testing.T) {
	tg, s := demand(t)
	c, _ := connectUnknown(t, tg, 0)
	for range cap(tg.computing) {
		tg.computing <- struct{}{} // others compute
	}
	b := (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil)
	first := c.start(authSend(len(b)), b)
	c.fails(authSend(len(b)), b, nvme.StatusCommandSequence)
	c.fails(authReceive(4096), make([]byte, 4096), nvme.StatusCommandSequence)
	for range cap(tg.computing) {
		<-tg.computing
	}
	if st := first.wait().Status(); st != nvme.StatusSuccess {
		t.Errorf("status %#x", uint16(st))
	}
	h := newAuthHost(c, s)
	if err := h.expect(h.chosen.Parse); err != nil {
		t.Error(err)
	}
	c.hangUp(nil)
}

// TestAuthenticationNeeds: who has to authenticate, who needn't, and who can't connect.
func TestAuthenticationNeeds(t *testing.T) {
	tg, s := demand(t)
	as := func(host, sub string) []byte {
		d := nvme.ConnectData{HostID: testHostID, CNTLID: nvme.CNTLIDDynamic, SubNQN: sub, HostNQN: host}
		b, err := d.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const other = "nqn.2024-01.com.example:other"
	c := dial(t, tg)
	res := c.fails(connectCommand(0, 31, 0), as(other, testNQN), nvme.StatusConnectInvalidHost|dnr)
	if nvme.ConnectInvalid(res.DW0()) != nvme.InvalidData(nvme.ConnectDataOffHOSTNQN) {
		t.Errorf("the result is %#x", res.DW0())
	}
	if res := nvme.ConnectResult(c.must(connectCommand(0, 31, 0), as(other, nvme.DiscoveryNQN)).DW0()); res&nvme.ConnectATR != 0 {
		t.Error("discovery demands authentication")
	}
	if err := tg.SetAuthentication(&Authentication{Hosts: map[string]HostSecrets{testHost: s}, Optional: true}); err != nil {
		t.Fatal(err)
	}
	free := dial(t, tg)
	if res := nvme.ConnectResult(free.must(connectCommand(0, 31, 0), as(other, testNQN)).DW0()); res&nvme.ConnectATR != 0 {
		t.Error("it isn't optional")
	}
	free.must(getProperty(nvme.PropCAP), nil)
	bound, _ := connectUnknown(t, tg, 0)
	bound.fails(getProperty(nvme.PropCAP), nil, authRequired)
	for _, c := range []*fakeConn{c, free, bound} {
		c.hangUp(nil)
	}
}

// TestDisconnectRevoked: a host whose secret is taken away goes, unless authentication is optional,
// and so does one that never had a secret when authentication is demanded. Who has one stays,
// though it changed, and so does who looks at discovery.
func TestDisconnectRevoked(t *testing.T) {
	const other, guest = "nqn.2024-01.com.example:other", "nqn.2024-01.com.example:guest"
	tg, s := demand(t, func(a *Authentication) {
		a.Hosts[other], a.Optional = HostSecrets{Host: testSecret(t)}, true
	})
	connectAs := func(host, sub string) *fakeConn {
		c := dial(t, tg)
		d := nvme.ConnectData{HostID: testHostID, CNTLID: nvme.CNTLIDDynamic, SubNQN: sub, HostNQN: host}
		b, err := d.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		c.must(connectCommand(0, 31, 0), b)
		return c
	}
	set := func(optional bool, hosts map[string]HostSecrets) {
		t.Helper()
		if err := tg.SetAuthentication(&Authentication{Hosts: hosts, Optional: optional}); err != nil {
			t.Fatal(err)
		}
	}
	admin, id := connectUnknown(t, tg, 0)
	if err := newAuthHost(admin, s).run(); err != nil {
		t.Fatal(err)
	}
	admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	io := dial(t, tg)
	io.must(connectCommand(1, 31, 0), connectData(t, id, testNQN))
	if err := newAuthHost(io, s).run(); err != nil {
		t.Fatal(err)
	}
	stays, free, looks := connectAs(other, testNQN), connectAs(guest, testNQN), connectAs(guest, nvme.DiscoveryNQN)

	set(true, nil) // nobody has a secret, and nobody needs one
	tg.DisconnectRevoked()
	admin.must(getProperty(nvme.PropCAP), nil)
	set(false, map[string]HostSecrets{other: {Host: testSecret(t)}})
	admin.must(getProperty(nvme.PropCAP), nil) // not before it is said
	tg.DisconnectRevoked()
	for _, c := range []*fakeConn{admin, free} {
		if c.waitClosed(); !errors.Is(c.reason, ErrNotAllowed) {
			t.Errorf("disconnected because of %v", c.reason)
		}
	}
	io.waitClosed()
	dial(t, tg).fails(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN), nvme.StatusConnectInvalidHost|dnr)
	looks.must(getProperty(nvme.PropCAP), nil)
	stays.fails(getProperty(nvme.PropCAP), nil, authRequired)
	for _, c := range []*fakeConn{stays, looks} {
		c.hangUp(nil)
	}
}

// TestReauthentication: a host authenticates anew while it works. New secrets end no connection;
// they count from the next authentication on, and one that fails ends that connection.
func TestReauthentication(t *testing.T) {
	tg, s := demand(t)
	admin, id := connectUnknown(t, tg, 0)
	must := func(c *fakeConn, s HostSecrets, tid uint16) {
		t.Helper()
		h := newAuthHost(c, s)
		h.tid, h.ctrl = tid, s.Controller
		if err := h.run(); err != nil {
			t.Fatal(err)
		}
	}
	must(admin, s, 1)
	admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	io := dial(t, tg)
	io.must(connectCommand(1, 127, 0), connectData(t, id, testNQN))
	must(io, s, 2)

	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for data := make([]byte, 4096); ; {
			select {
			case <-stop:
				return
			default:
				io.must(ioCommand(nvme.OpRead, 0, 1, 0), data)
			}
		}
	})
	must(admin, s, 1) // a transaction identifier may come again
	must(io, s, 2)
	next := HostSecrets{Host: testSecret(t), Controller: testSecret(t)}
	if err := tg.SetAuthentication(&Authentication{Hosts: map[string]HostSecrets{testHost: next}}); err != nil {
		t.Fatal(err)
	}
	admin.must(keepAliveNone(), nil)
	must(admin, next, 3)
	must(io, next, 4)
	close(stop)
	work.Wait()

	h := newAuthHost(io, s) // the old secret
	if err := h.run(); !errors.Is(err, nvme.AuthFailed) {
		t.Errorf("with the old secret: %v", err)
	}
	io.waitClosed()
	if !errors.Is(io.reason, ErrAuthentication) || admin.q.state.Load() != queueConnected {
		t.Errorf("the I/O queue ended with %v", io.reason)
	}
	admin.must(getProperty(nvme.PropCAP), nil)
	// From the failure on, before the host has fetched it, nothing is executed.
	h = newAuthHost(admin, next)
	h.send(nvme.AuthSuccess2Message, (&nvme.AuthSuccess2{TID: 9}).AppendTo(nil))
	admin.fails(getProperty(nvme.PropCAP), nil, authRequired)
	h.receive()
	admin.waitClosed()
}

// keepAliveNone is a command that any controller answers.
func keepAliveNone() nvme.Command { return getProperty(nvme.PropVS) }

// TestReplay: what was a right answer once is none again.
func TestReplay(t *testing.T) {
	tg, s := demand(t, func(a *Authentication) { a.DHGroups = []nvme.DHGroup{nvme.DHNull} })
	var heard []byte
	c, _ := connectUnknown(t, tg, 0)
	h := newAuthHost(c, s)
	h.alter = func(k nvme.AuthKind, b []byte) []byte {
		if k == nvme.AuthReplyMessage {
			heard = bytes.Clone(b)
		}
		return b
	}
	if err := h.run(); err != nil {
		t.Fatal(err)
	}
	c.hangUp(nil)
	c, _ = connectUnknown(t, tg, 0)
	h = newAuthHost(c, HostSecrets{Host: testSecret(t)})
	h.alter = instead(nvme.AuthReplyMessage, heard)
	if err := h.run(); !errors.Is(err, nvme.AuthFailed) {
		t.Errorf("a replay: %v", err)
	}
	c.waitClosed()
}

// TestAuthenticationTimeout: a host has the keep alive timeout for each step, or two minutes where
// there is none.
func TestAuthenticationTimeout(t *testing.T) {
	for kato, limit := range map[uint32]time.Duration{0: 2 * time.Minute, 30000: 30 * time.Second} {
		for steps := range 3 {
			inBubble(t, func(t *testing.T, tg *Target) {
				s := HostSecrets{Host: testSecret(t), Controller: testSecret(t)}
				a := &Authentication{Hosts: map[string]HostSecrets{testHost: s}, DHGroups: []nvme.DHGroup{nvme.DHNull}}
				if err := tg.SetAuthentication(a); err != nil {
					t.Fatal(err)
				}
				c, _ := connectUnknown(t, tg, kato)
				h := newAuthHost(c, s)
				time.Sleep(limit - time.Second)
				if steps > 0 {
					h.send(nvme.AuthNegotiateMessage, (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil))
					time.Sleep(limit - time.Second)
				}
				if steps > 1 {
					if err := h.expect(h.chosen.Parse); err != nil {
						t.Fatal(err)
					}
					time.Sleep(limit - time.Second)
				}
				if c.isClosed() {
					t.Fatal("ended too early")
				}
				time.Sleep(2 * time.Second)
				if !c.isClosed() || !errors.Is(c.reason, ErrAuthentication) && !errors.Is(c.reason, ErrKeepAlive) {
					t.Fatalf("KATO %d, step %d: closed %v, because of %v", kato, steps, c.isClosed(), c.reason)
				}
			})
		}
	}
	// Once it is done, nothing runs any more.
	inBubble(t, func(t *testing.T, tg *Target) {
		s := HostSecrets{Host: testSecret(t)}
		if err := tg.SetAuthentication(&Authentication{Hosts: map[string]HostSecrets{testHost: s}, DHGroups: []nvme.DHGroup{nvme.DHNull}}); err != nil {
			t.Fatal(err)
		}
		c, _ := connectUnknown(t, tg, 0)
		if err := newAuthHost(c, s).run(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if c.isClosed() {
			t.Errorf("it ended with %v", c.reason)
		}
	})
}

// TestAuthenticationQueues: a host that waits for its turn, since many authenticate themselves, runs
// out of no time.
func TestAuthenticationQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		s := HostSecrets{Host: testSecret(t)}
		if err := tg.SetAuthentication(&Authentication{Hosts: map[string]HostSecrets{testHost: s}, DHGroups: []nvme.DHGroup{nvme.DHNull}}); err != nil {
			t.Fatal(err)
		}
		c, _ := connectUnknown(t, tg, 1000)
		for range cap(tg.computing) {
			tg.computing <- struct{}{} // others compute
		}
		done := make(chan error)
		go func() { done <- newAuthHost(c, s).run() }()
		for range 9 { // the host of the test gives up after 10 s
			time.Sleep(time.Second)
		}
		if c.isClosed() {
			t.Fatalf("it ended with %v", c.reason)
		}
		for range cap(tg.computing) {
			<-tg.computing
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestAuthenticationConnectionLost: at any point.
func TestAuthenticationConnectionLost(t *testing.T) {
	for _, change := range transportModes {
		tg, _ := demand(t)
		c := dial(t, tg, change)
		c.must(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN))
		b := (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil)
		c.must(authSend(len(b)), b)
		fr := c.start(authReceive(4096), make([]byte, 4096))
		c.hangUp(errLost)
		fr.wait()
	}
}

// TestAuthenticationLog: what happened is told, and no secret.
func TestAuthenticationLog(t *testing.T) {
	var out bytes.Buffer
	s := HostSecrets{Host: testSecret(t), Controller: testSecret(t)}
	tg := newTargetWith(t, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Authentication = &Authentication{Hosts: map[string]HostSecrets{testHost: s}, DHGroups: []nvme.DHGroup{nvme.DHNull}}
	})
	good, _ := connectUnknown(t, tg, 0)
	h := newAuthHost(good, s)
	h.ctrl = s.Controller
	if err := h.run(); err != nil {
		t.Fatal(err)
	}
	good.hangUp(nil)
	bad, _ := connectUnknown(t, tg, 0)
	if err := newAuthHost(bad, HostSecrets{Host: testSecret(t)}).run(); err == nil {
		t.Fatal("a wrong secret")
	}
	bad.waitClosed()
	for _, want := range []string{
		`level=INFO msg="host authenticated"`, "hash=sha512 dhgroup=null bidirectional=true again=false",
		`level=WARN msg="authentication failed"`, `reason="the host's response is wrong: authentication failed"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
	for _, x := range []*dhchap.Secret{s.Host, s.Controller} {
		if strings.Contains(out.String(), x.Text()[10:20]) {
			t.Error("a secret is in the log")
		}
	}
}

func TestAuthenticationConfig(t *testing.T) {
	s := testSecret(t)
	for name, a := range map[string]Authentication{
		"name":        {Hosts: map[string]HostSecrets{"host": {Host: s}}},
		"no secret":   {Hosts: map[string]HostSecrets{testHost: {Controller: s}}},
		"same secret": {Hosts: map[string]HostSecrets{testHost: {Host: s, Controller: s}}},
		"hash":        {Hashes: []nvme.AuthHash{0}},
		"group":       {DHGroups: []nvme.DHGroup{6}},
	} {
		if _, err := New(Config{Authentication: &a}); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzAuthentication: without the secret, no messages in no order authenticate a host, and each
// command is answered.
func FuzzAuthentication(tf *testing.F) {
	f := fuzzing.New(tf)
	negotiate := (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil)
	reply := (&nvme.AuthReply{TID: 9, RVAL: make([]byte, 64), CVALID: true, SEQNUM: 1}).AppendTo(nil)
	success := (&nvme.AuthSuccess2{TID: 9}).AppendTo(nil)
	join := func(messages ...[]byte) (all []byte) {
		for _, m := range messages {
			all = append(binary.LittleEndian.AppendUint16(all, uint16(len(m))), m...)
		}
		return all
	}
	f.Add(uint8(0), join(negotiate, nil, reply, nil, success))
	f.Add(uint8(0), join(negotiate, nil, success))
	f.Add(uint8(0), join(success, reply, nil))
	f.Worlds(func(t *testing.T, _ uint8, inputs iter.Seq[[]byte]) {
		tg, _ := demand(t, func(a *Authentication) { a.DHGroups = []nvme.DHGroup{nvme.DHNull} })
		var c *fakeConn
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
					c.do(authReceive(4096), make([]byte, 4096))
				} else {
					c.do(authSend(n), message)
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
