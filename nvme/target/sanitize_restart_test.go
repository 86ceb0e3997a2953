package target

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// cutShort makes a host begin to sanitize, and ends the target while the operation is at the volume v.
func cutShort(t *testing.T, tg *Target, s *session, v *testVolume) {
	t.Helper()
	v.setHold(true)
	s.admin.must(sanitizeCommand(nvme.SanitizeOverwrite, 0, 1, 0xcccccccc), nil)
	<-v.arrived
	s.close()
	closing := make(chan struct{})
	go func() {
		defer close(closing)
		closeTarget(t, tg)
	}()
	<-tg.Subsystem(testNQN).ctx.Done()
	v.release()
	<-closing
}

// TestSanitizeResumes: an operation that was interrupted by the end of the target is done by the next one, and no host
// reads what was to be erased in between.
func TestSanitizeResumes(t *testing.T) {
	one, two, store := newTestVolume(1<<20, 512), newTestVolume(1<<20, 512), newMemStore()
	for i := range one.data {
		one.data[i], two.data[i] = 0xaa, 0xaa
	}
	start := func() *Target {
		return newTargetWith(t, func(c *Config) { c.Store = store }, one, two)
	}
	tg := start()
	s := connectAs(t, tg, 1)
	cutShort(t, tg, s, one)
	if bytes.Equal(two.data, bytes.Repeat([]byte{0xcc}, len(two.data))) {
		t.Fatal("it was done")
	}
	two.setHold(true)
	tg = start()
	<-two.arrived
	s = connectAs(t, tg, 1)
	s.io.fails(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512), nvme.StatusSanitizeInProgress)
	aer := s.admin.start(asyncEvent(1), nil)
	two.release()
	sanitized(t, aer)
	for _, v := range []*testVolume{one, two} {
		if !bytes.Equal(v.data, bytes.Repeat([]byte{0xcc}, len(v.data))) {
			t.Error("something is left")
		}
	}
	s.close()
}

// TestSanitizeResumesOnly: a volume that the operator adds before the next run did not exist when the host wanted all
// erased, and keeps its data.
func TestSanitizeResumesOnly(t *testing.T) {
	one, added, store := newTestVolume(1<<20, 512), newTestVolume(1<<20, 512), newMemStore()
	kept := bytes.Repeat([]byte{0xaa}, len(added.data))
	copy(added.data, kept)
	tg := newTargetWith(t, func(c *Config) { c.Store = store }, one)
	s := connectAs(t, tg, 1)
	cutShort(t, tg, s, one)
	one.setHold(true)
	tg = newTargetWith(t, func(c *Config) { c.Store = store }, one, added)
	<-one.arrived
	s = connectAs(t, tg, 1)
	s.io.fails(command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, 2, 0, 1, 0) }), make([]byte, 512), nvme.StatusSanitizeInProgress)
	aer := s.admin.start(asyncEvent(1), nil)
	one.release()
	sanitized(t, aer)
	if !bytes.Equal(one.data, bytes.Repeat([]byte{0xcc}, len(one.data))) {
		t.Error("something is left")
	}
	if !bytes.Equal(added.data, kept) {
		t.Error("what was added is erased")
	}
	s.close()
}

// TestSanitizeResumesUnknown: if what is saved doesn't tell the namespaces, all are meant that are there when the operation
// starts over, but none that the operator adds while it runs.
func TestSanitizeResumesUnknown(t *testing.T) {
	v, added, store := newTestVolume(1<<20, 512), newTestVolume(1<<20, 512), newMemStore()
	dirty(v, added)
	v.setHold(true)
	saved := newSubsystem(nil, &SubsystemConfig{NQN: testNQN}).stateName(stateSanitize)
	store.put(saved, []byte(`{"state":2,"cdw10":2}`))
	tg := newTargetWith(t, func(c *Config) { c.Store = store }, v)
	<-v.arrived
	if _, err := tg.Subsystem(testNQN).AddNamespace(NamespaceConfig{Volume: added}); err != nil {
		t.Fatal(err)
	}
	s := connectAs(t, tg, 1)
	defer s.close()
	aer := s.admin.start(asyncEvent(1), nil)
	v.release()
	sanitized(t, aer)
	if !bytes.Equal(v.data, make([]byte, len(v.data))) {
		t.Error("something is left")
	}
	if added.data[0] != 0xaa {
		t.Error("what was added is erased")
	}
}

// TestSanitizeResumesOnlySame: nor is a volume erased that the operator exports by the next run in the place of one that
// the host wanted erased, which isn't there any more.
func TestSanitizeResumesOnlySame(t *testing.T) {
	one, old, other, store := newTestVolume(1<<20, 512), newTestVolume(1<<20, 512), newTestVolume(1<<20, 512), newMemStore()
	one.info.Path, old.info.Path, other.info.Path = "one", "old", "other"
	kept := bytes.Repeat([]byte{0xaa}, len(other.data))
	copy(other.data, kept)
	tg := newTargetWith(t, func(c *Config) { c.Store = store }, one, old)
	s := connectAs(t, tg, 1)
	cutShort(t, tg, s, one)
	one.setHold(true)
	tg = newTargetWith(t, func(c *Config) { c.Store = store }, one, other)
	<-one.arrived
	s = connectAs(t, tg, 1)
	aer := s.admin.start(asyncEvent(1), nil)
	one.release()
	sanitized(t, aer)
	if !bytes.Equal(one.data, bytes.Repeat([]byte{0xcc}, len(one.data))) {
		t.Error("something is left")
	}
	if !bytes.Equal(other.data, kept) {
		t.Error("another volume is erased")
	}
	s.close()
}

// TestSanitizeCutShort: a target that can't wait for its connections doesn't end a sanitize operation: that volumes are
// closed under it doesn't count as their failure, and the next run continues.
func TestSanitizeCutShort(t *testing.T) {
	v, store := newTestVolume(1<<20, 512), newMemStore()
	tg := newTargetWith(t, func(c *Config) { c.Store = store }, v)
	s := connectAs(t, tg, 1)
	v.setHold(true)
	s.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
	<-v.arrived
	s.io.wg.Add(1) // the connection doesn't end
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tg.Close(ctx); err == nil {
		t.Fatal("closed")
	}
	v.setFail(errors.New("closed"))
	v.release()
	sub := tg.Subsystem(testNQN)
	s.io.wg.Done()
	closeTarget(t, tg)
	if now := sub.sanitize.now.Load(); now.State != nvme.SanitizeInProgress {
		t.Errorf("state %d", now.State)
	}
}

// TestSanitizeDamaged: a subsystem whose saved state can't be read isn't served: it may have to be erased.
func TestSanitizeDamaged(t *testing.T) {
	for _, bad := range []string{"{", `{"state":7}`} {
		store := newMemStore()
		store.put("sanitize-"+nvme.HostID(deriveUUID(testNQN, 0, "")).String(), []byte(bad))
		_, err := New(Config{Store: store, Subsystems: []SubsystemConfig{{NQN: testNQN}}})
		if !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "sanitize") {
			t.Errorf("served a subsystem whose saved state is %q: %v", bad, err)
		}
	}
}

// TestSanitizeNotSaved: the failure mode is left, and an operation ends as a success, only if that can be saved:
// otherwise it would be different after a restart.
func TestSanitizeNotSaved(t *testing.T) {
	v, store := newTestVolume(1<<20, 512), newMemStore()
	s := connectAs(t, newTargetWith(t, func(c *Config) { c.Store = store }, v), 1)
	defer s.close()
	aer := s.admin.start(asyncEvent(1), nil)
	v.setHold(true)
	s.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, nvme.SanitizeAUSE, 0, 0), nil)
	<-v.arrived
	store.setErr(errors.New("disk full"))
	v.release()
	sanitized(t, aer)
	if p := readSanitize(s.admin, false); p.SSTAT.State() != nvme.SanitizeFailed {
		t.Errorf("log %+v", p)
	}
	exit := sanitizeCommand(nvme.SanitizeExitFailure, 0, 0, 0)
	read := ioCommand(nvme.OpRead, 0, 1, 0)
	s.admin.fails(exit, nil, nvme.StatusInternalError|nvme.StatusDNR)
	s.io.fails(read, make([]byte, 512), nvme.StatusSanitizeFailed)
	store.setErr(nil)
	s.admin.must(exit, nil)
	s.io.must(read, make([]byte, 512))
}

// TestSanitizeWhileRemoved: a host that begins to sanitize a subsystem just as it is removed doesn't find that done when
// the subsystem is there again: then it has no namespaces to erase.
func TestSanitizeWhileRemoved(t *testing.T) {
	v, store := newTestVolume(1<<20, 512), newMemStore()
	start := func() (*Target, *session) {
		tg := newTargetWith(t, func(c *Config) { c.Store = store }, v)
		return tg, connectAs(t, tg, 1)
	}
	tg, s := start()
	sub := tg.Subsystem(testNQN)
	sub.sanitize.mu.Lock() // another change is being saved
	dirty(v)
	r := s.admin.start(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
	wait, err := tg.TakeSubsystem(testNQN)
	if err != nil {
		t.Fatal(err)
	}
	sub.sanitize.mu.Unlock()
	r.wait()
	wait()
	s.close()
	closeTarget(t, tg)
	_, s = start()
	if p := readSanitize(s.admin, true); p.SSTAT != nvme.SanitizeNever || v.data[0] != 0xaa {
		t.Errorf("sanitize operation: %v; the volume begins with %#x", p.SSTAT, v.data[0])
	}
	s.close()
}
