package target

import (
	"bytes"
	"slices"
	"testing"

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

// authHost is the host's side of DH-HMAC-CHAP, with faults that tests can choose.
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

// expect receives a message; AUTH_Failure1 in its place is an error.
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

const (
	authRequired = nvme.StatusAuthenticationRequired | dnr
	authDenied   = nvme.StatusOperationDenied // a host that connects again with the right secret may repeat them
)

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
