package target

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// occupy takes every place in which authentications are computed; the function that it returns frees them.
func occupy(tg *Target) (free func()) {
	for range computingPlaces() {
		tg.computing.take(netip.Addr{})
	}
	return func() {
		for range computingPlaces() {
			tg.computing.leave()
		}
	}
}

func negotiation() []byte {
	return (&nvme.AuthNegotiate{TID: 9, Hash: nvme.AuthHashes(), DH: nvme.DHGroups()}).AppendTo(nil)
}

// outOfTurn is a message that fails every transaction that hasn't got that far.
func outOfTurn() []byte { return (&nvme.AuthSuccess2{TID: 9}).AppendTo(nil) }

// authenticatedQueues connects an admin and an I/O queue, both authenticated.
func authenticatedQueues(t *testing.T, tg *Target, s HostSecrets) (admin, io *fakeConn) {
	t.Helper()
	admin, id := connectUnknown(t, tg, 0)
	if err := newAuthHost(admin, s).run(); err != nil {
		t.Fatal(err)
	}
	admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable)), nil)
	io = dial(t, tg)
	io.must(connectCommand(1, 127, 0), connectData(t, id, testNQN))
	if err := newAuthHost(io, s).run(); err != nil {
		t.Fatal(err)
	}
	return admin, io
}

// TestAuthenticationFailsFused: if a host fails to reauthenticate while one of its queues holds the first half of a
// fused operation, it can't continue with the second half.
func TestAuthenticationFailsFused(t *testing.T) {
	tg, s := demand(t, func(a *Authentication) { a.DHGroups = []nvme.DHGroup{nvme.DHNull} })
	admin, io := authenticatedQueues(t, tg, s)
	free := occupy(tg)
	sent := io.start(authSend(len(outOfTurn())), outOfTurn())
	first := io.start(fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1), make([]byte, 4096))
	free()
	if st := sent.wait().Status(); !st.OK() {
		t.Fatalf("status %#x", uint16(st))
	}
	io.fails(fusedCommand(nvme.OpWrite, nvme.FuseSecond, 0, 1), make([]byte, 4096), authDenied)
	if st := first.wait().Status() &^ nvme.StatusMore; st != nvme.StatusAbortMissingFused {
		t.Errorf("the first half: status %#x", uint16(st))
	}
	io.fails(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 4096), authDenied)
	newAuthHost(io, s).receive()
	io.waitClosed()
	admin.hangUp(nil)
}

// TestFusedTooLate: the first half of a fused operation that arrives at the moment when its queue changes state is
// answered, and not forgotten.
func TestFusedTooLate(t *testing.T) {
	for state, want := range map[uint32]nvme.Status{
		queueDenied:   authDenied,
		queueDraining: nvme.StatusAbortSQDeleted, // when the connection ends
		queueDown:     nvme.StatusAbortSQDeleted,
	} {
		s := connect(t, newTarget(t, newTestVolume(1<<20, 4096)), testNQN)
		q := s.io.q
		fr := s.io.newRequest()
		fr.Cmd = fusedCommand(nvme.OpCompare, nvme.FuseFirst, 0, 1)
		s.io.wg.Add(1)
		q.submitted.Add(1)
		fr.begin(q, q.t.Now())
		if state == queueDown {
			s.io.q.Closing(nil)
		} else {
			q.state.Store(state) // since Submit looked
		}
		q.holdFused(&fr.Request)
		if state == queueDraining {
			go s.io.hangUp(nil)
		}
		if st := fr.wait().Status() &^ nvme.StatusMore; st != want {
			t.Errorf("state %d: status %#x, want %#x", state, uint16(st), uint16(want))
		}
		s.close()
	}
}

// TestAuthenticationPatience: however long the host's keep-alive timeout, it can't keep a connection for longer than
// two minutes without authenticating itself.
func TestAuthenticationPatience(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		a := &Authentication{Hosts: map[string]HostSecrets{testHost: {Host: testSecret(t)}}}
		if err := tg.SetAuthentication(a); err != nil {
			t.Fatal(err)
		}
		c, _ := connectUnknown(t, tg, 1<<32-1)
		time.Sleep(2*time.Minute + time.Second)
		if !c.isClosed() || !errors.Is(c.reason, ErrAuthentication) {
			t.Errorf("closed %v, because of %v", c.isClosed(), c.reason)
			c.hangUp(nil)
		}
		if n := tg.Snapshot().Transports[0].AuthFailures; n != 1 {
			t.Errorf("%d failures", n)
		}
	})
}

// TestAuthenticationTimeoutEarly: the timer may expire before the queue has the authentication that it is for, if the
// program stood still meanwhile.
func TestAuthenticationTimeoutEarly(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		c := dial(t, tg)
		connectAdmin(c, testNQN, 0)
		c.q.state.Store(queueAuthenticating)
		c.q.newAuth()
		time.Sleep(2*time.Minute + time.Second)
		if !c.isClosed() || !errors.Is(c.reason, ErrAuthentication) {
			t.Errorf("closed %v, because of %v", c.isClosed(), c.reason)
		}
	})
}

// TestAuthenticationFailsOnce: a host that doesn't fetch the reason of its failure is disconnected, and counted as
// failed only once.
func TestAuthenticationFailsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		a := &Authentication{Hosts: map[string]HostSecrets{testHost: {Host: testSecret(t)}}}
		if err := tg.SetAuthentication(a); err != nil {
			t.Fatal(err)
		}
		c, _ := connectUnknown(t, tg, 0)
		c.must(authSend(len(outOfTurn())), outOfTurn())
		time.Sleep(2*time.Minute + time.Second)
		if n := tg.Snapshot().Transports[0].AuthFailures; !c.isClosed() || n != 1 {
			t.Errorf("closed %v, %d failures", c.isClosed(), n)
		}
	})
}

// TestAuthenticationNotBegun: a host that needn't authenticate itself, and whose command was wrong, has begun nothing
// that could time out.
func TestAuthenticationNotBegun(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		c := dial(t, tg)
		connectAdmin(c, testNQN, 0)
		a := &Authentication{Hosts: map[string]HostSecrets{testHost: {Host: testSecret(t)}}}
		if err := tg.SetAuthentication(a); err != nil {
			t.Fatal(err)
		}
		c.fails(authReceive(nvme.AuthFailureSize-1), make([]byte, nvme.AuthFailureSize-1), nvme.StatusInvalidField|dnr)
		time.Sleep(time.Hour)
		if c.isClosed() {
			t.Errorf("it ended with %v", c.reason)
			return
		}
		c.hangUp(nil)
	})
}

// TestAuthenticationBeginsOnce: of messages that arrive at the same time on a queue that had no authentication, only
// one is taken.
func TestAuthenticationBeginsOnce(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 4096))
	c := dial(t, tg)
	connectAdmin(c, testNQN, 0)
	for range 200 {
		c.q.auth.Store(nil)
		var taken atomic.Int32
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 2 {
			fr := c.newRequest()
			c.wg.Add(1)
			c.q.submitted.Add(1)
			fr.begin(c.q, tg.Now())
			all.Go(func() {
				<-begin
				if a := fr.takeAuth(false); a != nil {
					a.timer.Stop()
					taken.Add(1)
					fr.respond(nvme.StatusSuccess)
				}
			})
		}
		close(begin)
		all.Wait()
		if n := taken.Load(); n != 1 {
			t.Fatalf("%d were taken", n)
		}
	}
	c.q.auth.Store(nil)
	c.hangUp(nil)
}

// TestAuthenticationOfNobody: nothing is computed for a connection that has ended.
func TestAuthenticationOfNobody(t *testing.T) {
	tg, _ := demand(t)
	c, _ := connectUnknown(t, tg, 0)
	free := occupy(tg)
	c.start(authSend(len(negotiation())), negotiation())
	a := c.q.auth.Load()
	c.q.Closing(errLost)
	free()
	c.hangUp(errLost)
	if a.tx.step != authNegotiate {
		t.Errorf("step %d", a.tx.step)
	}
}

// TestAuthenticationNotStalled: refused commands don't extend a host's timeout.
func TestAuthenticationNotStalled(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		a := &Authentication{Hosts: map[string]HostSecrets{testHost: {Host: testSecret(t)}}}
		if err := tg.SetAuthentication(a); err != nil {
			t.Fatal(err)
		}
		c, _ := connectUnknown(t, tg, 30000)
		for range 2 {
			time.Sleep(14 * time.Second)
			c.fails(keepAlive, nil, authRequired)
			c.fails(authReceive(1), make([]byte, 1), nvme.StatusInvalidField|dnr)
		}
		time.Sleep(3 * time.Second)
		if !c.isClosed() || !errors.Is(c.reason, ErrAuthentication) {
			t.Errorf("closed %v, because of %v", c.isClosed(), c.reason)
			c.hangUp(nil)
		}
	})
}
