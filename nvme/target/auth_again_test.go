package target

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestDisconnectRevoked: a host whose secret is taken away is disconnected, unless authentication is optional, and so
// is one that never had a secret when authentication becomes mandatory. A host that has a secret stays, even if it
// changed, and so does a host on a discovery controller.
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

// TestReauthentication: a host reauthenticates while it works. New secrets end no connection; they apply from the next
// authentication on, and if that fails its connection ends.
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
	// From the failure on, even before the host has fetched it, nothing is executed.
	h = newAuthHost(admin, next)
	h.send(nvme.AuthSuccess2Message, (&nvme.AuthSuccess2{TID: 9}).AppendTo(nil))
	admin.fails(getProperty(nvme.PropCAP), nil, authDenied)
	h.receive()
	admin.waitClosed()
}

// TestReauthenticationTimesOut: a host that doesn't go on with a reauthentication hasn't failed: only the transaction
// ends, so that commands that continue it are out of sequence, and the host may begin another (NVMe base 2.1, section
// 8.3.4.2.1).
func TestReauthenticationTimesOut(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		s := HostSecrets{Host: testSecret(t)}
		a := &Authentication{Hosts: map[string]HostSecrets{testHost: s}, DHGroups: []nvme.DHGroup{nvme.DHNull}}
		if err := tg.SetAuthentication(a); err != nil {
			t.Fatal(err)
		}
		c, _ := connectUnknown(t, tg, 0)
		run := func() {
			t.Helper()
			if err := newAuthHost(c, s).run(); err != nil {
				t.Fatal(err)
			}
		}
		run()
		h := newAuthHost(c, s)
		for _, goesOn := range []func(){
			func() { c.fails(authReceive(4096), make([]byte, 4096), nvme.StatusCommandSequence) },
			func() {
				reply := (&nvme.AuthReply{TID: 9, RVAL: make([]byte, 64)}).AppendTo(nil)
				c.fails(authSend(len(reply)), reply, nvme.StatusCommandSequence)
			},
		} {
			h.send(nvme.AuthNegotiateMessage, negotiation())
			h.receive()
			time.Sleep(2*time.Minute + time.Second)
			if c.isClosed() {
				t.Fatal("the connection has ended")
			}
			goesOn()
			c.must(keepAliveNone(), nil)
		}
		run()
		if n := tg.Snapshot().Transports[0]; n.AuthFailures != 0 || n.Authentications != 2 {
			t.Errorf("%d failures, %d authentications", n.AuthFailures, n.Authentications)
		}
		c.hangUp(nil)
	})
}

// TestNoSecretAnyMore: a host that was let in, but couldn't be any more, gets no further queues.
func TestNoSecretAnyMore(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	admin := dial(t, tg)
	cntlid := connectAdmin(admin, testNQN, 0)
	others := &Authentication{Hosts: map[string]HostSecrets{"nqn.2024-01.com.example:other": {Host: testSecret(t)}}}
	if err := tg.SetAuthentication(others); err != nil {
		t.Fatal(err)
	}
	dial(t, tg).fails(connectCommand(1, 127, 0), connectData(t, cntlid, testNQN), nvme.StatusConnectInvalidHost|dnr)
	admin.hangUp(nil)
}

// keepAliveNone is a command that any controller answers.
func keepAliveNone() nvme.Command { return getProperty(nvme.PropVS) }

// TestReplay: a response that was right once isn't accepted again.
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
