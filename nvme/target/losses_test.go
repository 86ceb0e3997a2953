package target

import (
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// failFlush makes a volume fail its next flush, as a file does whose write-back failed: one flush is told, once.
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

// TestLossesAreToldToEach: what a volume reports to one host's Flush has to be reported to each host that was there
// before, because no Flush may promise what was lost. It is reported to each once.
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

// TestLossUnderAFlush: a Flush that was under way when another one failed doesn't cover writes after it, so that the
// next one fails, too.
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

// TestLossOfAShutdown: if a flush fails that no host is told of, because the target made it, the host's next Flush
// fails.
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

// TestLossOfALostConnection: the response to a Flush doesn't reach a host whose connection is gone; when the host is
// back, its next Flush fails.
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

// TestKnownHosts: a subsystem remembers no more hosts than it has room for, whatever their names.
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
