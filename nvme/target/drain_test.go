package target

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

func readCommand(lba uint64) nvme.Command {
	return command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, 1, lba, 8, 0) })
}

// A command under way is answered before its connection ends; one that arrives after the drain began is neither
// executed nor answered; no host can connect until Resume.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTestVolume(1<<20, 512)
		tg := newTarget(t, v)
		s := connect(t, tg, testNQN, func(c *fakeConn) { c.holdSent = true })
		v.setHold(true)
		under := s.io.start(readCommand(0), make([]byte, 4096))
		<-v.arrived
		drained := make(chan error)
		go func() { drained <- tg.Drain(t.Context()) }()
		synctest.Wait()

		late := s.io.start(readCommand(8), bytes.Repeat([]byte{7}, 4096))
		s.admin.must(getProperty(nvme.PropCSTS), nil)
		if _, err := tg.NewQueue(&fakeConn{t: t, attr: attr(nvme.TransportTCP)}); !errors.Is(err, ErrDraining) {
			t.Errorf("a new connection while draining: %v", err)
		}
		if !tg.Draining() || !tg.Snapshot().Draining {
			t.Error("it doesn't say that it drains")
		}
		v.release()
		if st := under.wait().Status(); st != nvme.StatusSuccess {
			t.Errorf("the command under way: %v", st)
		}
		time.Sleep(time.Second)
		select {
		case err := <-drained:
			t.Fatalf("drained (%v) before the answer is out", err)
		default:
		}
		s.io.release()
		if err := <-drained; err != nil {
			t.Error(err)
		}
		s.io.waitClosed()
		if st := late.wait().Status(); st.Code() != nvme.StatusAbortSQDeleted || late.host[0] != 7 {
			t.Errorf("the command that came late: %v", st)
		}
		tg.Resume()
		connect(t, tg, testNQN).close()
	})
}

// What takes too long is cut off when the time is over, and the error says so.
func TestDrainLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTestVolume(1<<20, 512)
		tg := newTarget(t, v)
		s := connect(t, tg, testNQN)
		v.setHold(true)
		s.io.start(readCommand(0), make([]byte, 4096))
		<-v.arrived
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		go func() { time.Sleep(4 * time.Second); v.release() }()
		if err := tg.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.HasPrefix(err.Error(), "target: draining: commands that were cut off: 1, connections that have not ended: ") {
			t.Errorf("drained with %v", err)
		}
		if took := time.Since(began); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A host that is already connected, and whose admin queue connects its first I/O queue while the target drains, gets no
// further.
func TestDrainConnect(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	tg := newTarget(t, v)
	s := connect(t, tg, testNQN)
	early := dial(t, tg)
	v.setHold(true)
	s.io.start(readCommand(0), make([]byte, 4096))
	<-v.arrived
	drained := make(chan error)
	go func() { drained <- tg.Drain(t.Context()) }()
	for !tg.Draining() {
		time.Sleep(time.Millisecond)
	}
	early.fails(connectCommand(0, 31, 0), connectData(t, nvme.CNTLIDDynamic, testNQN), nvme.StatusConnectBusy)
	v.release()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if err := tg.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := tg.Drain(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("draining a closed target: %v", err)
	}
}

// TestClosedTakesNothing: what can't have any effect on a closed target fails.
func TestClosedTakesNothing(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:4420")
	tg := newTargetWith(t, func(c *Config) { c.Ports = []Port{{ID: 1, Transport: nvme.TransportTCP, Addr: at}} })
	if err := tg.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, listens := tg.NewBuffers(nil)
	for what, err := range map[string]error{
		"a transport": listens,
		"a port":      tg.AddPort(Port{Transport: nvme.TransportRDMA, Addr: at}),
		"a referral":  tg.AddReferral(Referral{Transport: nvme.TransportRDMA, Addr: at}),
		"a state":     tg.SetANAState(1, 1, nvme.ANAInaccessible),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := tg.RemovePort(nvme.TransportTCP, at); err != nil { // listeners may be closed after the target
		t.Error(err)
	}
}

// Resume ends a drain that is still waiting: hosts that connect from then on are served, and hosts whose commands were
// kept have their connections closed at once, so that they send them again.
func TestResumeWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTestVolume(1<<20, 512)
		tg := newTarget(t, v)
		stuck, kept := connectAs(t, tg, 1), connectAs(t, tg, 2)
		v.setHold(true)
		stuck.io.start(readCommand(0), make([]byte, 4096))
		<-v.arrived
		drained := make(chan error, 1)
		go func() { drained <- tg.Drain(t.Context()) }()
		synctest.Wait()
		late := kept.io.start(readCommand(8), make([]byte, 4096))
		tg.Resume()
		time.Sleep(time.Second)
		if !kept.io.isClosed() {
			t.Error("a host whose command was kept is neither served nor let go")
		}
		s := connectAs(t, tg, 3)
		read := s.io.start(readCommand(16), make([]byte, 4096))
		synctest.Wait()
		time.Sleep(time.Second)
		v.release()
		if st := read.wait().Status(); st != nvme.StatusSuccess {
			t.Errorf("a command of a host that connected after Resume: %v", st)
		}
		if err := <-drained; err == nil {
			t.Error("the drain tells of no end before its time")
		}
		late.wait()
		stuck.io.waitClosed()
		if s.io.isClosed() {
			t.Error("the drain ended a connection of after Resume")
		}
		s.close()
	})
}
