package target

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
)

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
	for _, fc := range []nvme.FCType{nvme.FCAuthSend, nvme.FCAuthReceive} { // FCTYPE is where other commands have their NSID
		io.fails(command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, uint32(fc), 0, 1, 0) }), make([]byte, 4096), authRequired)
	}
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

// TestAuthenticationDefaults: what is chosen if the host offers everything and the configuration says nothing.
func TestAuthenticationDefaults(t *testing.T) {
	tg, s := demand(t, func(a *Authentication) { a.DHGroups = nil })
	c, _ := connectUnknown(t, tg, 0)
	h := newAuthHost(c, s)
	if err := h.run(); err != nil || h.chosen.Hash != nvme.AuthSHA512 || h.chosen.DH != nvme.DHFFDHE3072 {
		t.Errorf("%v, %v, %v", h.chosen.Hash, h.chosen.DH, err)
	}
}

// TestAuthenticationNeeds: which hosts have to authenticate themselves, which needn't, and which can't connect.
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
	if res.DW0() != 0 { // reserved
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
	// The names of both sides are what makes their responses differ.
	res = dial(t, tg).fails(connectCommand(0, 31, 0), as(testNQN, testNQN), nvme.StatusConnectInvalidHost|dnr)
	if res.DW0() != 0 { // reserved
		t.Errorf("the result is %#x", res.DW0())
	}
	bound, _ := connectUnknown(t, tg, 0)
	bound.fails(getProperty(nvme.PropCAP), nil, authRequired)
	for _, c := range []*fakeConn{c, free, bound} {
		c.hangUp(nil)
	}
}

// TestAuthenticationTimeout: a host has the keep-alive timeout for each step, or two minutes if there is none.
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
	// Once it is done, no timer runs any more.
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

// TestAuthenticationQueues: a host that waits for its turn, because many authenticate themselves, doesn't time out.
func TestAuthenticationQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		s := HostSecrets{Host: testSecret(t)}
		if err := tg.SetAuthentication(&Authentication{Hosts: map[string]HostSecrets{testHost: s}, DHGroups: []nvme.DHGroup{nvme.DHNull}}); err != nil {
			t.Fatal(err)
		}
		c, _ := connectUnknown(t, tg, 1000)
		free := occupy(tg) // others compute
		done := make(chan error)
		go func() { done <- newAuthHost(c, s).run() }()
		for range 9 { // the host of the test gives up after 10 s
			time.Sleep(time.Second)
		}
		if c.isClosed() {
			t.Fatalf("it ended with %v", c.reason)
		}
		free()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestAuthenticatedHostSilent: a host that has authenticated itself must keep alive like any other. The time for which
// it waited for others' authentication doesn't count: from its response on it has the whole timeout.
func TestAuthenticatedHostSilent(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		s := HostSecrets{Host: testSecret(t)}
		if err := tg.SetAuthentication(&Authentication{Hosts: map[string]HostSecrets{testHost: s}, DHGroups: []nvme.DHGroup{nvme.DHNull}}); err != nil {
			t.Fatal(err)
		}
		enabled := func() *fakeConn {
			c, _ := connectUnknown(t, tg, 1000)
			if err := newAuthHost(c, s).run(); err != nil {
				t.Fatal(err)
			}
			c.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
			return c
		}
		c := enabled()
		free := occupy(tg)
		sent := c.start(authSend(len(negotiation())), negotiation())
		time.Sleep(5*time.Second + 500*time.Millisecond)
		free()
		sent.wait()
		time.Sleep(900 * time.Millisecond)
		if c.isClosed() {
			t.Fatalf("it ended with %v", c.reason)
		}
		h := newAuthHost(c, s)
		if err := h.expect(h.chosen.Parse); err != nil {
			t.Fatal(err)
		}
		c.hangUp(nil)

		c = enabled()
		c.endsAfter(t, time.Second)
		if !errors.Is(c.reason, ErrKeepAlive) {
			t.Errorf("it ended with %v", c.reason)
		}
	})
}

// TestAuthenticationConnectionLost: a connection may end at any point of it.
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

// TestAuthenticationLog: the log says what happened, and no secrets.
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
	tg := newTarget(t)
	for name, a := range map[string]Authentication{
		"name":        {Hosts: map[string]HostSecrets{"host": {Host: s}}},
		"no secret":   {Hosts: map[string]HostSecrets{testHost: {Controller: s}}},
		"empty":       {Hosts: map[string]HostSecrets{testHost: {Host: &dhchap.Secret{}}}},
		"empty too":   {Hosts: map[string]HostSecrets{testHost: {Host: s, Controller: &dhchap.Secret{}}}},
		"same secret": {Hosts: map[string]HostSecrets{testHost: {Host: s, Controller: s}}},
		"hash":        {Hashes: []nvme.AuthHash{0}},
		"group":       {DHGroups: []nvme.DHGroup{6}},
	} {
		if _, err := New(Config{Authentication: &a}); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
		if err := tg.SetAuthentication(&a); !errors.Is(err, ErrConfig) || tg.auth.Load() != nil {
			t.Errorf("%s, later: %v", name, err)
		}
	}
}
