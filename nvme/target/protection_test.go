package target

import (
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestProtectionCommits: when the command is answered, all data written before a namespace is write protected is
// durable, including data that was on its way to the volume (NVMe base, "Namespace Write Protection Config").
func TestProtectionCommits(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"without a store": func(*Config) {},
		"with a store":    func(c *Config) { c.Store = newMemStore() },
	} {
		v := newTestVolume(1<<20, 512)
		tg := newTargetWith(t, change, v)
		s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
		data := make([]byte, 512)
		write := ioCommand(nvme.OpWrite, 0, 1, 0)
		v.setHold(true)
		under := other.io.start(write, data)
		protect := s.admin.start(setFeature(nvme.FeatWriteProtect, 1, writeProtected), nil)
		late := other.io.start(write, data)
		if protect.answered() {
			t.Errorf("%s: answered while a write is on its way", name)
		}
		v.release()
		if st := under.wait().Status(); !st.OK() {
			t.Errorf("%s: the write that was on its way: status %#x", name, uint16(st))
		}
		if st := protect.wait().Status(); !st.OK() {
			t.Errorf("%s: status %#x", name, uint16(st))
		}
		if st := late.wait().Status() &^ nvme.StatusMore; st != nvme.StatusNamespaceWriteProtected|dnr {
			t.Errorf("%s: the write that came later: status %#x", name, uint16(st))
		}
		if ops := v.ops(); !slices.Equal(ops, []blockdev.Op{blockdev.OpWrite, blockdev.OpFlush}) {
			t.Errorf("%s: the volume saw %v", name, ops)
		}
		s.admin.must(setFeature(nvme.FeatWriteProtect, 1, writeProtected), nil)
		s.admin.must(setFeature(nvme.FeatWriteProtect, 1, writeOpen), nil)
		if n := len(v.ops()); n != 2 {
			t.Errorf("%s: the volume saw %d operations where there was nothing to commit", name, n)
		}
		other.io.must(write, data)
		s.close()
		other.close()
	}
}

// TestProtectionFails: a namespace isn't write protected if what was written can't be made durable.
func TestProtectionFails(t *testing.T) {
	v := newTestVolume(1<<20, 512)
	s := connectAs(t, newTarget(t, v), 1)
	defer s.close()
	v.setFail(&blockdev.OpError{Op: "flush", Path: "test", Offset: -1, Kind: blockdev.ErrMedium})
	s.admin.fails(setFeature(nvme.FeatWriteProtect, 1, writeProtected), nil, nvme.StatusWriteFault|dnr)
	v.setFail(nil)
	s.io.must(ioCommand(nvme.OpWrite, 0, 1, 0), make([]byte, 512))
	s.admin.must(setFeature(nvme.FeatWriteProtect, 1, writeProtected), nil)
}

// TestProtectionWithdrawn: write protection can be aborted while it waits, and ends with the controller.
func TestProtectionWithdrawn(t *testing.T) {
	for name, withdraw := range map[string]func(*session){
		"abort": func(s *session) {
			if done := s.admin.must(command(func(c *nvme.Command) { c.SetAbort(0, 99) }), nil).DW0(); done != 0 {
				t.Error("not aborted")
			}
		},
		"reset": func(s *session) { s.admin.must(ccOff, nil) },
	} {
		v := newTestVolume(1<<20, 512)
		tg := newTarget(t, v)
		s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
		v.setHold(true)
		under := other.io.start(ioCommand(nvme.OpRead, 0, 1, 0), make([]byte, 512))
		cmd := setFeature(nvme.FeatWriteProtect, 1, writeProtected)
		cmd.SetCID(99)
		protect := s.admin.start(cmd, nil)
		withdraw(s)
		if st := protect.wait().Status().Code(); st != nvme.StatusAbortRequested {
			t.Errorf("%s: status %#x", name, uint16(st))
		}
		v.release()
		under.wait()
		other.io.must(ioCommand(nvme.OpWrite, 0, 1, 0), make([]byte, 512))
		s.close()
		other.close()
	}
}

// heldStore is a Store whose changes wait until the test lets each go on.
type heldStore struct {
	*memStore
	changes chan chan struct{}
}

func (s *heldStore) wait() {
	release := make(chan struct{})
	s.changes <- release
	<-release
}

func (s *heldStore) Save(name string, data []byte) error {
	if strings.HasPrefix(name, stateProtected) {
		s.wait()
	}
	return s.memStore.Save(name, data)
}

func (s *heldStore) Delete(name string) error {
	s.wait()
	return s.memStore.Delete(name)
}

// next returns what lets the next change go on, once that waits.
func (s *heldStore) next(t *testing.T) func() {
	t.Helper()
	release, ok := soon.Receive(s.changes)
	if !ok {
		t.Fatal("nothing is saved")
	}
	return func() { close(release) }
}

// TestProtectionLiftedWhileRemoved: a namespace stays until what is stored of its write protection is changed.
// Otherwise another one with its UUID would be protected by what a host has lifted, or lose what another host has set.
func TestProtectionLiftedWhileRemoved(t *testing.T) {
	store := &heldStore{newMemStore(), make(chan chan struct{})}
	tg := newTargetWith(t, func(c *Config) { c.Store = store }, newTestVolume(1<<20, 512))
	s := connectAs(t, tg, 1)
	defer s.close()
	first := s.admin.start(setFeature(nvme.FeatWriteProtect, 1, writeProtected), nil)
	store.next(t)()
	first.wait()
	lift := s.admin.start(setFeature(nvme.FeatWriteProtect, 1, writeOpen), nil)
	lifted := store.next(t)
	sub := tg.Subsystem(testNQN)
	ns := sub.namespace(1)
	wait, err := sub.TakeNamespace(1)
	if err != nil {
		t.Fatal(err)
	}
	if ns.users() == 0 {
		t.Error("it can go while its protection is being lifted")
	}
	lifted()
	if st := lift.wait().Status(); !st.OK() {
		t.Errorf("lifted with status %#x", uint16(st))
	}
	wait()
	s.admin.fails(setFeature(nvme.FeatWriteProtect, 1, writeOpen), nil, nvme.StatusInvalidNamespace|dnr)
}

// TestProtectionWhileLifted: a host protects a namespace from which another host is just lifting the protection. What
// is written in between is durable, or there is nothing.
func TestProtectionWhileLifted(t *testing.T) {
	store := &heldStore{newMemStore(), make(chan chan struct{})}
	v := newTestVolume(1<<20, 512)
	tg := newTargetWith(t, func(c *Config) { c.Store = store }, v)
	s, other := connectAs(t, tg, 1), connectAs(t, tg, 2)
	defer s.close()
	defer other.close()
	first := s.admin.start(setFeature(nvme.FeatWriteProtect, 1, writeProtected), nil)
	store.next(t)()
	first.wait()
	before := len(v.ops())

	lift := s.admin.start(setFeature(nvme.FeatWriteProtect, 1, writeOpen), nil)
	lifted := store.next(t)
	protect := other.admin.start(setFeature(nvme.FeatWriteProtect, 1, writeProtected), nil)
	lifted()
	if st := lift.wait().Status(); !st.OK() {
		t.Errorf("lifted with status %#x", uint16(st))
	}
	protected := store.next(t)
	write := s.io.start(ioCommand(nvme.OpWrite, 0, 1, 0), make([]byte, 512))
	protected()
	if st := protect.wait().Status(); !st.OK() {
		t.Errorf("protected with status %#x", uint16(st))
	}
	if st := write.wait().Status(); st.OK() {
		t.Errorf("a namespace was written to while it was being protected; after that the volume saw %v", v.ops()[before:])
	}
}
