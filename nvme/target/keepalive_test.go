package target

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// inBubble runs a test in virtual time with a target of one namespace.
func inBubble(t *testing.T, f func(t *testing.T, tg *Target)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tg, err := New(Config{Subsystems: []SubsystemConfig{{NQN: testNQN, AllowAnyHost: true,
			Namespaces: []NamespaceConfig{{Volume: newTestVolume(1<<20, 4096)}}}}})
		if err != nil {
			t.Fatal(err)
		}
		f(t, tg)
		closeTarget(t, tg)
	})
}

func (c *fakeConn) isClosed() bool {
	synctest.Wait()
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// endsAfter waits until a connection that is to end after d has ended, and reports if that is too early or late.
func (c *fakeConn) endsAfter(t *testing.T, d time.Duration) {
	t.Helper()
	time.Sleep(d - time.Millisecond)
	if c.isClosed() {
		t.Fatal("ended too early")
	}
	time.Sleep(2 * time.Millisecond)
	if !c.isClosed() {
		t.Fatal("not ended")
	}
}

var keepAlive = command(func(c *nvme.Command) { c.SetKeepAlive() })

// TestSilentHost: a host that sends nothing for the keep-alive timeout loses its controller
// with all its queues, at that time.
func TestSilentHost(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		admin := dial(t, tg)
		id := connectAdmin(admin, testNQN, 5000)
		s := &session{admin: admin, cntlid: id}
		io := s.addQueue(t, tg, 1, testNQN)
		aer := admin.start(asyncEvent(1), nil)
		for range 5 {
			time.Sleep(2500 * time.Millisecond)
			admin.must(keepAlive, nil)
		}
		time.Sleep(5*time.Second - time.Millisecond)
		if admin.isClosed() {
			t.Fatal("ended too early")
		}
		time.Sleep(2 * time.Millisecond)
		if !admin.isClosed() || !io.isClosed() {
			t.Fatal("not ended")
		}
		if !errors.Is(admin.reason, ErrKeepAlive) || !errors.Is(io.reason, ErrControllerGone) {
			t.Errorf("reasons: %v, %v", admin.reason, io.reason)
		}
		aer.wait()
		if n := tg.Snapshot(); n.Transports[0].KeepAliveTimeouts != 1 || n.Controllers != 0 || n.Connections != 0 {
			t.Errorf("%d timeouts, %d controllers, %d connections", n.Transports[0].KeepAliveTimeouts, n.Controllers, n.Connections)
		}
	})
}

// TestTrafficKeepsAlive: any command on any queue counts (TBKAS).
func TestTrafficKeepsAlive(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		admin := dial(t, tg)
		s := &session{admin: admin, cntlid: connectAdmin(admin, testNQN, 1000)}
		io := s.addQueue(t, tg, 1, testNQN)
		for range 20 {
			time.Sleep(900 * time.Millisecond)
			io.must(command(func(c *nvme.Command) { c.SetFlush(1) }), nil)
		}
		if admin.isClosed() {
			t.Fatal("ended in spite of traffic")
		}
		time.Sleep(1001 * time.Millisecond)
		if !admin.isClosed() {
			t.Fatal("not ended")
		}
	})
}

// TestKATOFeature: the timeout can be changed, but not turned off: RDMA and TCP require it (NVMe base, "Keep Alive Timer
// Configuration").
func TestKATOFeature(t *testing.T) {
	set := func(ms uint32) nvme.Command {
		return command(func(c *nvme.Command) { c.SetSetFeatures(nvme.FeatKATO, false, 0, ms) })
	}
	inBubble(t, func(t *testing.T, tg *Target) {
		q := dial(t, tg)
		connectAdmin(q, testNQN, 0)
		q.fails(keepAlive, nil, nvme.StatusKATOInvalid|dnr)
		time.Sleep(time.Hour)
		q.must(set(60_000), nil)
		q.must(keepAlive, nil)
		time.Sleep(59 * time.Second)
		q.fails(set(0), nil, nvme.StatusKATOInvalid|dnr)
		if e := lastError(q); e.Location != offCDW11 {
			t.Errorf("location %#x", e.Location)
		}
		if kato := q.must(getFeature(nvme.FeatKATO, 0, 0), nil).DW0(); kato != 60_000 {
			t.Errorf("KATO %d after it was to be turned off", kato)
		}
		q.must(set(150), nil) // 200 ms, in units of 100
		q.endsAfter(t, 200*time.Millisecond)
	})
}

// TestKeepAliveNotReady: the keep-alive timeout doesn't apply to a controller that isn't enabled yet, was disabled, or
// is shut down (NVMe base, "Keep Alive Timer Activation"). Its association lasts for two minutes at least ("Message-based
// Controller Initialization"), but not forever.
func TestKeepAliveNotReady(t *testing.T) {
	const (
		kato     = 5 * time.Second
		disabled = nvme.CCFabrics
		enabled  = nvme.CCFabrics | nvme.CCEnable
		shutdown = enabled | nvme.CCSHNNormal
	)
	for name, tc := range map[string]struct {
		ccs   []nvme.CC // what the host writes, with a minute behind each that doesn't enable the controller
		lasts time.Duration
	}{
		"not enabled":       {nil, 2 * time.Minute},
		"enabled":           {[]nvme.CC{enabled}, kato},
		"enabled late":      {[]nvme.CC{disabled, enabled}, kato},
		"disabled":          {[]nvme.CC{enabled, disabled}, time.Minute},
		"enabled again":     {[]nvme.CC{enabled, disabled, enabled}, kato},
		"shut down":         {[]nvme.CC{enabled, shutdown}, time.Minute},
		"no more shut down": {[]nvme.CC{enabled, shutdown, enabled}, kato},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, tg *Target) {
				q := dial(t, tg)
				q.must(connectCommand(0, 31, uint32(kato.Milliseconds())), connectData(t, nvme.CNTLIDDynamic, testNQN))
				for _, cc := range tc.ccs {
					q.must(setProperty(nvme.PropCC, uint64(cc)), nil)
					if cc != enabled {
						time.Sleep(time.Minute)
					}
				}
				q.endsAfter(t, tc.lasts)
			})
		})
	}
}

// TestDiscoveryDefault: a discovery controller without keep-alive doesn't stay for ever.
func TestDiscoveryDefault(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		q := dial(t, tg)
		connectAdmin(q, nvme.DiscoveryNQN, 0)
		q.endsAfter(t, discoveryKATO)
	})
}

// TestConnectTimeout: a connection without a Connect is closed; one with a Connect stays.
func TestConnectTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, tg *Target) {
		mute, failing, good := dial(t, tg), dial(t, tg), dial(t, tg)
		connectAdmin(good, testNQN, 0)
		time.Sleep(9 * time.Second)
		failing.fails(connectCommand(0, 0, 0), connectData(t, nvme.CNTLIDDynamic, testNQN), nvme.StatusConnectInvalidParameter|dnr)
		time.Sleep(time.Second + time.Millisecond)
		for _, c := range []*fakeConn{mute, failing} {
			if !c.isClosed() || !errors.Is(c.reason, ErrConnectTimeout) {
				t.Errorf("without Connect: closed because of %v", c.reason)
			}
		}
		time.Sleep(time.Hour)
		if good.isClosed() {
			t.Error("a connected queue was closed")
		}
	})
}

// TestKeepAliveRest: a target that stood still listens to the host before it gives up.
func TestKeepAliveRest(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct{ silent, late, kato, want time.Duration }{
		{2 * s, 0, 5 * s, 3 * s},
		{2 * s, 9 * s, 5 * s, 3 * s},
		{5 * s, 0, 5 * s, 0},
		{6 * s, s, 5 * s, 0},
		{6250 * time.Millisecond, 1250 * time.Millisecond, 5 * s, 0}, // only as late as other load makes the timer
		{7 * s, 2 * s, 5 * s, 2500 * time.Millisecond},               // we slept
		{5500 * time.Millisecond, s, 5 * s, 2500 * time.Millisecond}, // from 4.5 s on at the latest
		{26 * s, 21 * s, 5 * s, 2500 * time.Millisecond},             // we slept
		{28500 * time.Millisecond, 0, 5 * s, 0},                      // and it still says nothing
	} {
		if got := keepAliveRest(tc.silent, tc.late, tc.kato); got != tc.want {
			t.Errorf("silent %v, timer late by %v, timeout %v: %v, want %v", tc.silent, tc.late, tc.kato, got, tc.want)
		}
	}
}
