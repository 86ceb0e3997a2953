package tests

import (
	"errors"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
	"github.com/nvme-anywhere/nvmeof/statedir"
)

// TestReservations: over every transport a host reserves a namespace, others can't write to it and are notified when
// that ends, and with PTPL the reservation outlives the target.
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
func serveReserved(t *testing.T, v blockdev.Volume, dir, path string) (owner, other *hostSide, told chan nvme.ReservationNotification) {
	t.Helper()
	state, err := statedir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "state", state.Close)
	_, remote := serveConfig(t, target.Config{Store: state, Subsystems: []target.SubsystemConfig{
		{NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v, UUID: [16]byte{1}}}},
	}})
	told = make(chan nvme.ReservationNotification, 8)
	owner = dialHost(t, remote, path, func(c *host.Config) { c.HostID = ownerID })
	other = dialHost(t, remote, path, func(c *host.Config) {
		c.HostID = otherID
		c.ReservationNotified = func(_ *host.Controller, n nvme.ReservationNotification) { told <- n }
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
	const kind = nvme.ResvWriteExclusiveRegOnly
	ctx, block := t.Context(), make([]byte, 4096)
	mine, theirs := owner.namespace(t, 1), other.namespace(t, 1)
	must(mine.ReservationRegister(ctx, nvme.ResvRegister, nvme.ResvKeys{Other: 1}, false, nvme.CPTPLSet))
	must(theirs.ReservationRegister(ctx, nvme.ResvRegister, nvme.ResvKeys{Other: 2}, false, nvme.CPTPLSet))
	must(mine.ReservationAcquire(ctx, nvme.ResvAcquire, kind, nvme.ResvKeys{Current: 1}))
	must(sendIO(t, other, ioOf(nvme.OpWrite, 1, 0, 1), block))
	must(mine.ReservationRelease(ctx, nvme.ResvRelease, kind, 1))
	if n := <-told; n.Type != nvme.ResvNoticeReleased || n.NSID != 1 {
		t.Errorf("told of %v", n)
	}
	must(mine.ReservationAcquire(ctx, nvme.ResvAcquire, kind, nvme.ResvKeys{Current: 1}))
	must(theirs.ReservationRegister(ctx, nvme.ResvUnregister, nvme.ResvKeys{Current: 2}, false, nvme.CPTPLKeep))
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
	p, err := other.namespace(t, 1).Reservations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p.Type != nvme.ResvWriteExclusiveRegOnly || !p.Persist || len(p.Registrants) != 1 ||
		p.Registrants[0] != (nvme.ResvRegistrant{CNTLID: owner.CNTLID(), Holder: true, Key: 1, HostID: ownerID}) {
		t.Errorf("report %+v, %v", p, err)
	}
}

// TestReservationPrograms: a host reserves a namespace by successive runs of nvmeinit, and others, and then the host
// itself after another has preempted it, can't write to it.
func TestReservationPrograms(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", t.TempDir()+"/disk", "--size", "4MiB", "--state", t.TempDir())
	block := makeFile(t, t.TempDir()+"/block", 4096)
	const me, you = "nqn.2014-08.org.nvmexpress:uuid:6a3b2f60-0000-4000-8000-000000000001", "nqn.2014-08.org.nvmexpress:uuid:6a3b2f60-0000-4000-8000-000000000002"
	transport := map[string]string{me: "rdma", you: "tcp"}
	run := func(who, line string) result {
		t.Helper()
		verb, flags, _ := strings.Cut(line, " ")
		return tgt.run(t, cliTimeout, transport[who], verb, append(args(flags), "-q", who)...)
	}
	for _, c := range []struct{ who, line, says string }{
		{me, "resv-register --nrkey 0x11 --cptpl 3", ""},
		{me, "resv-acquire --crkey 0x11 --rtype 1", ""},
		{me, "write --quiet --input " + block, ""},
		{you, "write --quiet --input " + block, "reservation conflict"},
		{you, "resv-acquire --crkey 0x22 --rtype 1", "reservation conflict"},
		{you, "resv-register --nrkey 0x22", ""},
		{you, "resv-acquire --crkey 0x22 --rtype 1 --racqa 1 --prkey 0x11", ""},
		{me, "write --quiet --input " + block, "reservation conflict"},
		{you, "write --quiet --input " + block, ""},
		{you, "resv-release --crkey 0x22 --rtype 1", ""},
		{me, "write --quiet --input " + block, ""},
		{you, "resv-release --crkey 0x22 --rrela 1", ""},
	} {
		r := run(c.who, c.line)
		if want := c.says == ""; r.code == 0 != want || !strings.Contains(r.stderr, c.says) || r.stdout != "" {
			t.Errorf("%s of host %s: exit code %d, %q %q, want %q", c.line, c.who[len(c.who)-1:], r.code, r.stdout, r.stderr, c.says)
		}
	}
	plain := startTarget(t, "--volume", "mem:4MiB")
	for line, says := range map[string]string{
		"resv-register --nrkey 0x11 --cptpl 3": "--cptpl 3: registrations with namespace 1 don't outlast a loss of power (RESCAP is 0xfe); with nvmetgt it takes serve --state",
		"persistent-event-log":                 "keeps no Persistent Event log (LPA is 0x27); with nvmetgt it takes serve --state",
	} {
		verb, flags, _ := strings.Cut(line, " ")
		if r := plain.run(t, cliTimeout, "tcp", verb, args(flags)...); r.code != exitFailure || !strings.Contains(r.stderr, says) {
			t.Errorf("%s without --state: exit code %d, %q, want %q", line, r.code, r.stderr, says)
		}
	}
	if out := run(me, "resv-report").stdout; !strings.Contains(out, "ptpls      : 1") || !strings.Contains(out, "nobody has registered") {
		t.Errorf("report:\n%s", out)
	}
}
