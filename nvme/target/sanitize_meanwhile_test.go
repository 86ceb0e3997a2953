package target

import (
	"bytes"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// sanitizeModel is a sanitize operation during whose saves something happens.
type sanitizeModel struct {
	t        *testing.T
	tg       *Target
	v, added *testVolume
	store    *savesThen
	asker    *session
	newcomer *session
	told     *fakeRequest // the end is reported here
}

func newSanitizeModel(t *testing.T) *sanitizeModel {
	m := &sanitizeModel{t: t, v: newTestVolume(1<<20, 512), added: newTestVolume(1<<20, 512)}
	m.store = &savesThen{memStore: newMemStore(), name: namespaceState(stateSanitize, deriveUUID(testNQN, 0, ""))}
	m.tg = newTargetWith(t, func(c *Config) { c.Store = m.store }, m.v)
	dirty(m.v, m.added)
	m.asker = connectAs(t, m.tg, 1)
	m.told = m.asker.admin.start(asyncEvent(1), nil)
	return m
}

// readOf is a Read of a namespace.
func readOf(nsid uint32) nvme.Command {
	return command(func(c *nvme.Command) { c.SetIO(nvme.OpRead, nsid, 0, 1, 0) })
}

// TestSanitizeMeanwhile: what the operator adds and who connects just while it is saved that a sanitize operation
// begins, or how it ended, is treated as before or after that: the namespace keeps its data, can't be used while the
// operation runs, and can afterwards; and the host is refused commands until the end, which it is told if the one that
// asked is gone.
func TestSanitizeMeanwhile(t *testing.T) {
	for _, when := range []string{"beginning", "end"} {
		t.Run(when, func(t *testing.T) {
			m := newSanitizeModel(t)
			m.v.setHold(true)
			happened := make(chan struct{})
			happens := func() { m.during(when == "end"); close(happened) }
			if when == "beginning" {
				m.store.then.Store(&happens)
			}
			m.asker.admin.must(sanitizeCommand(nvme.SanitizeBlockErase, 0, 0, 0), nil)
			<-m.v.arrived
			if when == "end" {
				m.store.then.Store(&happens)
			} else {
				m.refused()
			}
			m.v.release()
			<-happened
			m.check()
		})
	}
}

// during is what happens meanwhile.
func (m *sanitizeModel) during(ending bool) {
	if _, err := m.tg.Subsystem(testNQN).AddNamespace(NamespaceConfig{NSID: 2, Volume: m.added}); err != nil {
		m.t.Error(err)
	}
	m.newcomer = connectAs(m.t, m.tg, 2)
	if ending {
		m.refused()
		m.asker.close()
		m.told = m.newcomer.admin.start(asyncEvent(1), nil)
	}
}

// refused checks that no namespace can be used.
func (m *sanitizeModel) refused() {
	for nsid := range uint32(2) {
		m.newcomer.io.fails(readOf(nsid+1), make([]byte, 512), nvme.StatusSanitizeInProgress)
	}
}

func (m *sanitizeModel) check() {
	sanitized(m.t, m.told)
	for nsid, want := range []byte{0, 0xaa} {
		b := make([]byte, 512)
		m.newcomer.io.must(readOf(uint32(nsid)+1), b)
		if !bytes.Equal(b, bytes.Repeat([]byte{want}, len(b))) {
			m.t.Errorf("namespace %d begins with %#x afterwards, want %#x", nsid+1, b[0], want)
		}
	}
	m.newcomer.close()
}
