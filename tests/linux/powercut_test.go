package linux

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/tests/crashload"
	"github.com/nvme-anywhere/nvmeof/tests/hostlib"
)

// testPowerCuts cuts the power of a machine with nvmetgt while a host, on this side, writes blocks that identify their
// write: whatever was acknowledged as durable is there, and no block is torn.
func testPowerCuts(t *testing.T, version string, cuts int) {
	s := newStore(t, version)
	loads := make([]*crashload.Load, len(storeVolumes))
	for i, v := range storeVolumes {
		loads[i] = crashload.New(storeBlocks, v.block)
		loads[i].Volatile = v.volatile
	}
	for i := range cuts + 1 {
		s.boot(t)
		if i == 0 {
			s.format(t)
		}
		s.mount(t)
		s.serve(t, storeVolumes...)
		h := s.dial(t, transports[i%len(transports)])
		s.check(t, h, loads)
		if i == cuts {
			s.modes(t)
			break
		}
		s.load(t, h, loads)
		if t.Failed() {
			t.Fatalf("after %d power cuts", i+1)
		}
	}
	for i, v := range storeVolumes {
		t.Logf("%s: %d power cuts, %d writes acknowledged, %d cut", v.name, cuts, loads[i].Acknowledged.Load(), loads[i].Cut.Load())
	}
	t.Attr("power-cuts", strconv.Itoa(cuts))
}

// check reads everything.
func (s *store) check(t *testing.T, h *hostlib.Host, loads []*crashload.Load) {
	t.Helper()
	for i, v := range storeVolumes {
		ns, err := h.Namespace(t.Context(), uint32(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if err := loads[i].Check(t.Context(), ns); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
	}
}

// load writes to all volumes, and cuts the power once a random number of writes has been acknowledged.
func (s *store) load(t *testing.T, h *hostlib.Host, loads []*crashload.Load) {
	t.Helper()
	moment := make(chan struct{}, len(loads))
	ended := make(chan []error, len(loads))
	for i, l := range loads {
		ns, err := h.Namespace(t.Context(), uint32(i+1))
		if err != nil {
			t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(s.rnd.Uint64(), 0))
		go func() {
			ended <- l.Run(context.WithoutCancel(t.Context()), ns, rnd, 1+rnd.Uint64N(200), func() { moment <- struct{}{} })
		}()
	}
	for range 1 + s.rnd.IntN(len(loads)) { // the volumes aren't equally fast
		<-moment
	}
	s.cut(t)
	h.Abandon()
	for range loads {
		for _, err := range <-ended {
			if !errors.Is(err, host.ErrClosed) && !errors.Is(err, host.ErrLost) {
				t.Errorf("a writer ended with %v", err)
			}
		}
	}
}

// modes checks what nvmetgt said about its volumes.
func (s *store) modes(t *testing.T) {
	log := s.must(t, "cat /tmp/log")
	for _, v := range storeVolumes {
		if !strings.Contains(log, v.mode) {
			t.Errorf("%s: nvmetgt doesn't say %q:\n%s", v.name, v.mode, log)
		}
	}
}
