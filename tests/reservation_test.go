package tests

import (
	"errors"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/statedir"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestReservations: over every transport a host reserves a namespace, others are kept from
// writing and told when that ends, and with PTPL the reservation outlives the target.
func TestReservations(t *testing.T) {
	noLeaks(t)
	v := newMemory(t, 16<<20)
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			dir := t.TempDir()
			t.Run("before", func(t *testing.T) { reserve(t, v, dir, path) })
			t.Run("after a restart", func(t *testing.T) { findReserved(t, v, dir, path) })
		})
	}
}

// The hosts of the test.
var (
	ownerID = nvme.HostID{1, 15: 1}
	otherID = nvme.HostID{2, 15: 1}
)

// serveReserved serves v with its state in dir, and connects two hosts.
func serveReserved(t *testing.T, v blockdev.Volume, dir, path string) (owner, other *hostSide, told chan nvme.AsyncEvent) {
	t.Helper()
	state, err := statedir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "state", state.Close)
	_, remote := serveConfig(t, target.Config{Store: state, Subsystems: []target.SubsystemConfig{
		{NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v}}},
	}})
	told = make(chan nvme.AsyncEvent, 8)
	owner = dialHost(t, remote, path, func(c *host.Config) { c.HostID = ownerID })
	other = dialHost(t, remote, path, func(c *host.Config) {
		c.HostID = otherID
		c.Event = func(_ *host.Controller, e nvme.AsyncEvent) { told <- e }
	})
	return owner, other, told
}

// sendIO sends one command to the first I/O queue.
func sendIO(t *testing.T, h *hostSide, cmd nvme.Command, data []byte) error {
	t.Helper()
	return h.Queues()[0].Do(t.Context(), &host.Request{Cmd: cmd, Data: data})
}

func reserve(t *testing.T, v blockdev.Volume, dir, path string) {
	owner, other, told := serveReserved(t, v, dir, path)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	register := make1(func(c *nvme.Command) { c.SetResvRegister(1, nvme.ResvRegister, false, nvme.CPTPLSet) })
	acquire := make1(func(c *nvme.Command) { c.SetResvAcquire(1, nvme.ResvAcquire, nvme.ResvWriteExclusiveRegOnly) })
	release := make1(func(c *nvme.Command) { c.SetResvRelease(1, nvme.ResvRelease, nvme.ResvWriteExclusiveRegOnly) })
	unregister := make1(func(c *nvme.Command) { c.SetResvRegister(1, nvme.ResvUnregister, false, nvme.CPTPLKeep) })
	block := make([]byte, 4096)
	must(sendIO(t, owner, register, nvme.ResvKeys{Other: 1}.AppendTo(nil)))
	must(sendIO(t, other, register, nvme.ResvKeys{Other: 2}.AppendTo(nil)))
	must(sendIO(t, owner, acquire, nvme.ResvKeys{Current: 1}.AppendTo(nil)))
	must(sendIO(t, other, ioOf(nvme.OpWrite, 1, 0, 1), block))
	must(sendIO(t, owner, release, nvme.ResvKeys{Current: 1}.AppendTo(nil)[:8]))
	if e := <-told; e != nvme.EventReservation {
		t.Errorf("event %v", e)
	}
	must(sendIO(t, owner, acquire, nvme.ResvKeys{Current: 1}.AppendTo(nil)))
	must(sendIO(t, other, unregister, nvme.ResvKeys{Current: 2}.AppendTo(nil)))
	if err := sendIO(t, other, ioOf(nvme.OpWrite, 1, 0, 1), block); !errors.Is(err, nvme.StatusReservationConflict) {
		t.Errorf("write of a host that isn't registered: %v", err)
	}
	must(sendIO(t, other, ioOf(nvme.OpRead, 1, 0, 1), block))
}

func findReserved(t *testing.T, v blockdev.Volume, dir, path string) {
	owner, other, _ := serveReserved(t, v, dir, path)
	block := make([]byte, 4096)
	if err := sendIO(t, other, ioOf(nvme.OpWrite, 1, 0, 1), block); !errors.Is(err, nvme.StatusReservationConflict) {
		t.Errorf("write of a host that isn't registered: %v", err)
	}
	if err := sendIO(t, owner, ioOf(nvme.OpWrite, 1, 0, 1), block); err != nil {
		t.Error(err)
	}
	b := make([]byte, 128)
	if err := sendIO(t, other, make1(func(c *nvme.Command) { c.SetResvReport(1, len(b)) }), b); err != nil {
		t.Fatal(err)
	}
	var p nvme.ResvStatus
	if err := p.Parse(b); err != nil || p.Type != nvme.ResvWriteExclusiveRegOnly || !p.Persist || len(p.Registrants) != 1 ||
		p.Registrants[0] != (nvme.ResvRegistrant{CNTLID: owner.CNTLID(), Holder: true, Key: 1, HostID: ownerID}) {
		t.Errorf("report %+v, %v", p, err)
	}
}
