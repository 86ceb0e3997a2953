package target

import (
	"slices"
	"sync"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// attachModel is a host whose controller gets or loses a namespace: the operator's, or a private one that another host
// had and would get again.
type attachModel struct {
	t          *testing.T
	tg         *Target
	s, manager *session
	meanwhile  string
	before     nvme.NSIDList // what the controller has
	told       *fakeRequest
}

// TestAttachmentMeanwhile lets everything happen that can while it is saved what a host attaches or detaches: then a
// private namespace is attached to one controller, a controller has what the next one of its host gets, and the host
// has been told of what changed.
func TestAttachmentMeanwhile(t *testing.T) {
	for _, private := range []bool{false, true} {
		for action, what := range []string{nvme.NSAttach: "attach ", nvme.NSDetach: "detach "} {
			for _, meanwhile := range []string{"nothing", "connect", "disconnect", "remove", "replace"} {
				t.Run(what+map[bool]string{true: "private, "}[private]+meanwhile, func(t *testing.T) {
					store := &savesThen{memStore: newMemStore(), name: namespaceState(stateNamespaces, deriveUUID(testNQN, 0, ""))}
					m := newAttachModel(t, store, meanwhile)
					nsid := uint32(1)
					if private {
						nsid = FirstCreatedNSID
					}
					m.prepare(nsid, nvme.NSAction(action))
					during := m.during
					store.then.Store(&during)
					m.manager.admin.must(attachCommand(nsid, nvme.NSAction(action)), controllerList(m.s.cntlid))
					m.check()
				})
			}
		}
	}
}

func newAttachModel(t *testing.T, store *savesThen, meanwhile string) *attachModel {
	tg := newTargetWith(t, func(c *Config) {
		c.Store, c.Subsystems[0].Pool, c.Subsystems[0].Namespaces = store, newMemPool(1<<20), []NamespaceConfig{numbered(1)}
	})
	return &attachModel{t: t, tg: tg, meanwhile: meanwhile, manager: connectAs(t, tg, 3)}
}

// prepare makes the action possible.
func (m *attachModel) prepare(nsid uint32, action nvme.NSAction) {
	admin, other := m.manager.admin, connectAs(m.t, m.tg, 2)
	m.s = connectAs(m.t, m.tg, 1)
	private := create(admin, 0)
	admin.must(attachCommand(private, nvme.NSAttach), controllerList(other.cntlid))
	other.close()
	if has := m.s.admin.q.ctrl.namespace(nsid) != nil; has != (action == nvme.NSDetach) {
		admin.must(attachCommand(nsid, nvme.NSDetach-action), controllerList(m.s.cntlid))
	}
	enableEvents(m.s.admin, nvme.AENNamespace)
	changedNamespaces(m.s.admin, false)
	m.before, m.told = nsidsOf(m.s.admin, nvme.CNSActiveNSIDs), m.s.admin.start(asyncEvent(1), nil)
}

// during is what happens meanwhile.
func (m *attachModel) during() {
	sub := m.tg.Subsystem(testNQN)
	switch m.meanwhile {
	case "connect":
		connectAs(m.t, m.tg, 2)
	case "disconnect":
		m.s.close()
		m.s = nil
	case "remove", "replace":
		if err := sub.RemoveNamespace(1); err != nil {
			m.t.Error(err)
		}
	}
	if m.meanwhile == "replace" {
		if _, err := sub.AddNamespace(numbered(2)); err != nil {
			m.t.Error(err)
		}
	}
}

func (m *attachModel) check() {
	if l := controllersOf(m.manager.admin, FirstCreatedNSID); len(l) > 1 {
		m.t.Errorf("a private namespace is attached to controllers %v", l)
	}
	if m.s == nil {
		return
	}
	has, list := nsidsOf(m.s.admin, nvme.CNSActiveNSIDs), changedNamespaces(m.s.admin, true).NSIDs
	if !slices.Equal(has, m.before) && (!m.told.answered() || len(list) == 0) {
		m.t.Errorf("namespaces were %v and are %v, and the host was told of %v", m.before, has, list)
	}
	m.s.close()
	if next := nsidsOf(connectAs(m.t, m.tg, 1).admin, nvme.CNSActiveNSIDs); !slices.Equal(next, has) {
		m.t.Errorf("the next controller has %v, the one before had %v", next, has)
	}
}

// TestReplacedWhileRemoved: a host is told that a namespace is gone, even if another one, which it had detached, has the
// NSID before it is told.
func TestReplacedWhileRemoved(t *testing.T) {
	tg, s := startNumbered(t, newMemPool(1<<20), newMemStore(), 2)
	sub := tg.Subsystem(testNQN)
	replace := func(id byte) {
		t.Helper()
		if err := sub.RemoveNamespace(1); err != nil {
			t.Error(err)
		}
		if _, err := sub.AddNamespace(numbered(id)); err != nil {
			t.Error(err)
		}
	}
	s.admin.must(attachCommand(1, nvme.NSDetach), controllerList(s.cntlid))
	replace(1)
	all := []*session{s, connectAs(t, tg, 1), connectAs(t, tg, 1)} // of the same host
	var adds sync.Once
	for _, s := range all {
		enableEvents(s.admin, nvme.AENNamespace)
		changedNamespaces(s.admin, false)
		s.admin.answering = func(fr *fakeRequest) {
			if fr.Cmd.Opcode() == nvme.OpAsyncEvent { // the first that is told
				adds.Do(func() {
					if _, err := sub.AddNamespace(numbered(2)); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
	for _, s := range all {
		s.admin.start(asyncEvent(1), nil)
	}
	if err := sub.RemoveNamespace(1); err != nil {
		t.Fatal(err)
	}
	for i, s := range all {
		if told := changedNamespaces(s.admin, true).NSIDs; len(told) != 1 || len(nsidsOf(s.admin, nvme.CNSActiveNSIDs)) != 0 {
			t.Errorf("controller %d was told of %v, and has %v", i, told, nsidsOf(s.admin, nvme.CNSActiveNSIDs))
		}
		s.close()
	}
}
