package target

import (
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// failFlush has a volume fail its next flush, as a file does whose write-back failed: one is told, once.
func failFlush(v *testVolume) {
	var told atomic.Bool
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fail = func(r *blockdev.Request) error {
		if r.Op == blockdev.OpFlush && told.CompareAndSwap(false, true) {
			return &blockdev.OpError{Op: "flush", Path: "test", Offset: -1, Kind: blockdev.ErrMedium}
		}
		return nil
	}
}

func flushOf(nsid uint32) nvme.Command { return command(func(c *nvme.Command) { c.SetFlush(nsid) }) }

// TestLossesAreToldToEach: what a volume tells one host's Flush, each host's has to say that was there before it, for no
// Flush may promise what was lost. It says so once.
func TestLossesAreToldToEach(t *testing.T) {
	v, other := newTestVolume(1<<20, 512), newTestVolume(1<<20, 512)
	tg := newTarget(t, v, other)
	var hosts [3]*session
	for i := range hosts {
		hosts[i] = connectAs(t, tg, i)
		defer hosts[i].close()
		hosts[i].io.must(ioCommand(nvme.OpWrite, 0, 1, 0), make([]byte, 512))
	}
	failFlush(v)
	hosts[0].io.fails(flushOf(1), nil, nvme.StatusWriteFault|dnr)
	hosts[0].io.must(flushOf(1), nil)
	hosts[1].io.fails(flushOf(1), nil, nvme.StatusWriteFault|dnr)
	hosts[1].io.must(flushOf(1), nil)
	hosts[2].io.must(flushOf(2), nil)
	hosts[2].io.fails(flushOf(nvme.NSIDAll), nil, nvme.StatusWriteFault|dnr)
	hosts[2].io.must(flushOf(nvme.NSIDAll), nil)

	late := connectAs(t, tg, 3)
	defer late.close()
	late.io.must(flushOf(1), nil)
}

// TestLossUnderAFlush: a Flush that was under way when another failed doesn't cover what was written behind it, so that
// the next fails, too.
func TestLossUnderAFlush(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	a, b := connectAs(t, tg, 0), connectAs(t, tg, 1)
	defer a.close()
	defer b.close()
	v.setHold(true)
	first := a.io.start(flushOf(1), nil)
	<-v.arrived
	second := b.io.start(flushOf(1), nil)
	<-v.arrived
	failFlush(v)
	v.release() // the first fails
	for i, f := range []*fakeRequest{first, second} {
		if st := f.wait().Status() &^ nvme.StatusMore; st != nvme.StatusWriteFault|dnr {
			t.Errorf("flush %d: %v", i, st)
		}
	}
	b.io.fails(flushOf(1), nil, nvme.StatusWriteFault|dnr)
	b.io.must(flushOf(1), nil)
	a.io.must(flushOf(1), nil)
}

// TestLossOfAShutdown: a flush of which the host isn't told, since it made none, has its next one fail.
func TestLossOfAShutdown(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	a, b := connectAs(t, tg, 0), connectAs(t, tg, 0) // two paths
	defer a.close()
	defer b.close()
	failFlush(v)
	a.admin.must(setProperty(nvme.PropCC, uint64(nvme.CCFabrics|nvme.CCEnable|nvme.CCSHNNormal)), nil)
	b.io.fails(flushOf(1), nil, nvme.StatusWriteFault|dnr)
	b.io.must(flushOf(1), nil)
}

// TestLossOfALostConnection: the answer to a Flush doesn't reach a host whose connection is gone; when it is back, its
// next Flush fails.
func TestLossOfALostConnection(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	a := connectAs(t, tg, 0)
	v.setHold(true)
	a.io.start(flushOf(1), nil)
	<-v.arrived
	failFlush(v)
	a.io.Disconnect(nil)
	a.admin.Disconnect(nil)
	soon.Until(func() bool { return a.io.q.state.Load() == queueDown })
	v.release()
	a.io.waitClosed()
	a.admin.waitClosed()
	again := connectAs(t, tg, 0)
	defer again.close()
	again.io.fails(flushOf(1), nil, nvme.StatusWriteFault|dnr)
	again.io.must(flushOf(1), nil)
}

// TestKnownHosts: a subsystem remembers no more hosts than it has room for, whatever names they give themselves.
func TestKnownHosts(t *testing.T) {
	tg := newTarget(t, newTestVolume(1<<20, 512))
	s := tg.Subsystem(testNQN)
	s.all()[0].losses.add(nvme.StatusWriteFault)
	for i := range mostKnown + 100 {
		s.meet(hostKey{id: nvme.HostID{byte(i), byte(i >> 8)}})
	}
	if len(s.known) != mostKnown || len(s.all()[0].losses.told) != mostKnown {
		t.Errorf("%d hosts are known, and of %d it is what they know; want %d", len(s.known), len(s.all()[0].losses.told), mostKnown)
	}
}
