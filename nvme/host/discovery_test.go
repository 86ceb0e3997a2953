package host

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

func discoveryTarget(entries int) *fakeTarget {
	f := newFakeTarget()
	f.nqn = nvme.DiscoveryNQN
	f.identity.CNTRLTYPE = nvme.ControllerDiscovery
	f.identity.KAS, f.identity.IOCCSZ, f.identity.OAES, f.identity.LPA = 0, 0, 0, 0
	f.identity.SQES, f.identity.CQES = 0, 0
	f.genctr = 7
	for i := range entries {
		e := nvme.DiscoveryEntry{TRTYPE: nvme.TransportTCP, PORTID: uint16(i)}
		_ = nvme.PutText(e.SUBNQN[:], testNQN)
		f.entries = append(f.entries, e)
	}
	return f
}

func TestDiscover(t *testing.T) {
	for _, n := range []int{0, 1, 11} {
		f := discoveryTarget(n)
		cfg := f.config()
		cfg.SubNQN = ""
		l, err := Discover(t.Context(), cfg)
		if err != nil || l.Generation != 7 || len(l.Entries) != n {
			t.Fatalf("%d entries: %+v, %v", n, l, err)
		}
		for i, e := range l.Entries {
			if int(e.PORTID) != i || e.NQN() != testNQN {
				t.Errorf("entry %d: %+v", i, e)
			}
		}
		if f.kato != 0 || len(f.queues) != 1 {
			t.Errorf("KATO %d, %d queues", f.kato, len(f.queues))
		}
	}
}

// TestDiscoverWithoutKeepAlive: a discovery controller without explicit persistent connections refuses a keep alive
// timeout (as older ones of Linux and SPDK do), so reading the log doesn't ask for one, by whatever name the controller
// goes.
func TestDiscoverWithoutKeepAlive(t *testing.T) {
	for _, nqn := range []string{nvme.DiscoveryNQN, "nqn.2024-01.com.example:discovery"} {
		f := discoveryTarget(1)
		f.nqn = nqn
		f.hook = func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
			if r.Cmd.Name(0) == nvme.FCConnect.String() && r.Cmd.ConnectKATO() != 0 {
				cqe.SetStatus(nvme.StatusInvalidField | nvme.StatusDNR)
				return answered
			}
			return usual
		}
		for _, kato := range []time.Duration{0, 5 * time.Second} {
			cfg := f.config()
			cfg.KATO = kato
			if l, err := Discover(t.Context(), cfg); err != nil || len(l.Entries) != 1 {
				t.Errorf("%s, KATO %v: %v", nqn, kato, err)
			}
		}
	}
}

// TestDiscoverInterrupted: a caller that gives up while the controller, which has hung, is being closed doesn't wait for
// as long as the controller says that it may take (RTD3E).
func TestDiscoverInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := discoveryTarget(1)
		f.identity.RTD3E = uint32(time.Minute / time.Microsecond)
		ctx, cancel := context.WithCancel(t.Context())
		f.hook = func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
			if r.Cmd.Opcode() == nvme.OpFabrics && r.Cmd.FCType() == nvme.FCPropertySet && nvme.CC(r.Cmd.PropertyValue()).Shutdown() != nvme.CCSHNNone {
				cancel()
				return never
			}
			return usual
		}
		began := time.Now()
		l, err := Discover(ctx, f.config())
		if err != nil || len(l.Entries) != 1 {
			t.Errorf("Discover returned %+v, %v", l, err)
		}
		if took := time.Since(began); ctx.Err() == nil || took != 0 {
			t.Errorf("it took %v, interrupted: %v", took, ctx.Err())
		}
	})
}

// TestDiscoverChanging has the log grow while it is read, twice.
func TestDiscoverChanging(t *testing.T) {
	f := discoveryTarget(1)
	reads := 0
	f.hook = func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		f.mu.Lock()
		defer f.mu.Unlock()
		if r.Cmd.Opcode() == nvme.OpGetLogPage && r.Cmd.LogOffset() != 0 {
			if reads++; reads <= 2 {
				f.entries = append(f.entries, nvme.DiscoveryEntry{TRTYPE: nvme.TransportRDMA})
				f.genctr++
			}
		}
		return usual
	}
	l, err := Discover(t.Context(), f.config())
	if err != nil || len(l.Entries) != 3 || l.Generation != 9 {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestDiscoverLong: a long log takes no more commands than the controller's largest transfer (MDTS) requires, up to
// 64 KiB each, and is read again if it changes between two of them.
func TestDiscoverLong(t *testing.T) {
	const entries = 400
	for _, tc := range []struct {
		mdts   uint8
		pieces int // of 4 KiB × 2^mdts, or 64 KiB
	}{{0, 7}, {1, 50}, {3, 13}, {4, 7}, {8, 7}} {
		f := discoveryTarget(entries)
		f.identity.MDTS = tc.mdts
		reads := 0
		f.hook = func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
			f.mu.Lock()
			defer f.mu.Unlock()
			if r.Cmd.Opcode() != nvme.OpGetLogPage || r.Cmd.LogOffset() == 0 {
				return usual
			}
			if reads++; reads == 3 { // two pieces are of the old log
				slices.Reverse(f.entries)
				f.genctr++
			}
			return usual
		}
		l, err := Discover(t.Context(), f.config())
		if err != nil || len(l.Entries) != entries || l.Generation != 8 {
			t.Fatalf("MDTS %d: %+v, %v", tc.mdts, l, err)
		}
		for i, e := range l.Entries {
			if int(e.PORTID) != entries-1-i {
				t.Fatalf("MDTS %d: entry %d is %+v", tc.mdts, i, e)
			}
		}
		if reads != 2*tc.pieces {
			t.Errorf("MDTS %d: %d commands for the entries, want %d twice", tc.mdts, reads, tc.pieces)
		}
	}
}

// TestDiscoverShrinking: a log that becomes shorter between two of the commands that read it is read again, although
// the controller refuses to read beyond its end (NVMe base 2.1, Get Log Page, LPOL). If it refuses without such a
// change, that is the error.
func TestDiscoverShrinking(t *testing.T) {
	f := discoveryTarget(20)
	f.identity.MDTS = 1
	shrinks := true
	f.hook = func(_ *fakeQueue, r *Request, cqe *nvme.Completion) verdict {
		f.mu.Lock()
		defer f.mu.Unlock()
		if r.Cmd.Opcode() != nvme.OpGetLogPage || r.Cmd.LogOffset() == 0 {
			return usual
		}
		if n := uint64(len(f.entries)+1) * nvme.DiscoveryEntrySize; r.Cmd.LogOffset() > n || !shrinks {
			cqe.SetStatus(nvme.StatusInvalidField | nvme.StatusDNR)
			return answered
		}
		if len(f.entries) == 20 {
			f.entries = f.entries[:2]
			f.genctr++
		}
		return usual
	}
	l, err := Discover(t.Context(), f.config())
	if err != nil || len(l.Entries) != 2 || l.Generation != 8 {
		t.Errorf("%+v, %v", l, err)
	}
	shrinks = false
	if _, err := Discover(t.Context(), f.config()); !errors.Is(err, nvme.StatusInvalidField) {
		t.Errorf("a log that stays the same: %v", err)
	}
}

func TestDiscoverNeverStable(t *testing.T) {
	f := discoveryTarget(0)
	f.hook = func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		f.mu.Lock()
		defer f.mu.Unlock()
		if r.Cmd.Opcode() == nvme.OpGetLogPage {
			f.genctr++
		}
		return usual
	}
	if _, err := Discover(t.Context(), f.config()); !errors.Is(err, ErrDiscoveryUnstable) {
		t.Error(err)
	}
}

func TestDiscoverAbsurd(t *testing.T) {
	f := discoveryTarget(0)
	f.hook = func(_ *fakeQueue, r *Request, _ *nvme.Completion) verdict {
		if r.Cmd.Opcode() != nvme.OpGetLogPage {
			return usual
		}
		h := nvme.DiscoveryHeader{NUMREC: 1 << 60}
		copy(r.Data, h.AppendTo(nil))
		return answered
	}
	if _, err := Discover(t.Context(), f.config()); !errors.Is(err, ErrController) {
		t.Error(err)
	}
}
