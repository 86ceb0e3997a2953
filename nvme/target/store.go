package target

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Store keeps what must outlive the target, and power failures: reservations that persist, marks of uncorrectable
// blocks, write protection, what hosts change in a subsystem's namespaces, sanitize operations and events. Package
// statedir implements one.
type Store interface {
	// Load returns what was last saved under a name; nil if nothing was.
	Load(name string) ([]byte, error)
	// Save replaces what is kept under a name. When it returns without an error, the new content survives a power
	// failure. After an error the old content is still what Load returns, now and when the target is started again: a
	// host was told that nothing has changed. A power failure before Save returns, or after an error, leaves either the
	// old or the new content, whole. Save may block.
	Save(name string, data []byte) error
	// Delete deletes what is kept under a name, if there is anything, and promises the same.
	Delete(name string) error
}

// The state of a namespace is stored under its UUID, so it belongs to whatever volume has that UUID: to any if the UUID
// is given, because an operator who moves a volume keeps its UUID; otherwise to the volume for which it was derived.

// storedState is the state of a namespace as it is stored. Volume tells people whose it is.
type storedState struct {
	Volume string          `json:"volume"`
	State  json.RawMessage `json:"state"`
}

// loadState returns what was last saved of something; nil if nothing was, or there is no Store.
func (ns *Namespace) loadState(what string) ([]byte, error) {
	if ns.store() == nil {
		return nil, nil
	}
	b, err := ns.sub.t.loaded.load(ns.sub, ns.stateName(what))
	if err != nil || b == nil {
		return nil, err
	}
	var s storedState
	if err := parseState(b, &s); err != nil {
		return nil, ns.stateError(what, err)
	}
	if s.State == nil {
		return nil, ns.stateError(what, errors.New("it doesn't say of which volume it is"))
	}
	return s.State, nil
}

// refuseFormer refuses a namespace of which an earlier version stored something, under a UUID that didn't depend on the
// volume: otherwise a reservation or write protection would silently end.
func (ns *Namespace) refuseFormer() error {
	volume, former := volumeName(&ns.info), ns.formerUUID()
	if ns.store() == nil || volume == "" || ns.uuid != deriveUUID(ns.sub.nqn, ns.nsid, volume) {
		return nil
	}
	for _, what := range namespaceStates {
		name := namespaceState(what, former)
		b, err := ns.sub.t.loaded.load(ns.sub, name)
		if err != nil {
			return err
		}
		var s storedState
		if b != nil && (json.Unmarshal(b, &s) != nil || s.State == nil || s.Volume == volume) {
			return stateError(name, errors.New("it is of an earlier version: delete it, and have hosts set again what it says"))
		}
	}
	return nil
}

// formerUUID is the UUID that earlier versions derived for the namespace.
func (ns *Namespace) formerUUID() [16]byte { return deriveUUID(ns.sub.nqn, ns.nsid, "") }

// parseState parses state that was saved. It refuses what another version of the program added: what that says would end
// silently, at the latest with the next Save.
func parseState(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return err // it is damaged
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("it is of another version, use that: %w", err)
	}
	return nil
}

// What is stored of a namespace.
const (
	stateReservation   = "reservation"
	stateUncorrectable = "uncorrectable"
	stateProtected     = "protected"
)

var namespaceStates = []string{stateReservation, stateUncorrectable, stateProtected}

// What is stored of a subsystem.
const (
	stateNamespaces = "namespaces"
	stateSanitize   = "sanitize"
	stateEvents     = "events"
)

// namespaceState is the name under which something of the namespace with that UUID is stored.
func namespaceState(what string, uuid [16]byte) string {
	return what + "-" + nvme.HostID(uuid).String()
}

func (ns *Namespace) stateName(what string) string { return namespaceState(what, ns.uuid) }

// stateError reports what is wrong with something of the namespace that was saved.
func (ns *Namespace) stateError(what string, err error) error {
	return stateError(ns.stateName(what), err)
}

// saving makes a change that is saved if there is a Store: then in another goroutine, as that takes time, which ends
// before the subsystem is closed, so that nothing is saved after another process has opened the directory.
func (r *Request) saving(change func()) {
	c := r.engine.q.ctrl
	if c.t.store == nil {
		change()
		return
	}
	c.sub.work.Go(change)
}

// saveState saves something for the namespace's volume.
func (ns *Namespace) saveState(what string, state any) error {
	b, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if b, err = json.Marshal(storedState{volumeName(&ns.info), b}); err != nil {
		return err
	}
	return ns.sub.save(ns.stateName(what), append(b, '\n'))
}

// stateName is the name under which something of the subsystem is stored.
func (s *Subsystem) stateName(what string) string {
	return namespaceState(what, deriveUUID(s.nqn, 0, ""))
}

// stateError reports what is wrong with something of the subsystem that was saved.
func (s *Subsystem) stateError(what string, err error) error {
	return stateError(s.stateName(what), err)
}

// loadState reads something of the subsystem that was saved. It leaves v as it is if nothing was, or there is no Store.
func (s *Subsystem) loadState(what string, v any) error {
	if s.t.store == nil {
		return nil
	}
	b, err := s.t.store.Load(s.stateName(what))
	if err != nil || b == nil {
		return err
	}
	if err := parseState(b, v); err != nil {
		return s.stateError(what, err)
	}
	return nil
}

// saveState saves something of the subsystem.
func (s *Subsystem) saveState(what string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.save(s.stateName(what), append(b, '\n'))
}

// save saves in the Store unless the subsystem is closed. A command of a host that is being disconnected may come later
// than that, when another subsystem may have the name, or another program the Store.
func (s *Subsystem) save(name string, data []byte) error {
	return s.storing(name, func() error { return s.t.store.Save(name, data) })
}

// unsave deletes what is kept under a name, unless the subsystem is closed.
func (s *Subsystem) unsave(name string) error {
	return s.storing(name, func() error { return s.t.store.Delete(name) })
}

var errSubsystemClosed = errors.New("the subsystem is closed")

func (s *Subsystem) storing(name string, f func() error) error {
	s.stored.RLock()
	defer s.stored.RUnlock()
	if s.storedAll {
		return errSubsystemClosed
	}
	defer s.t.loaded.forget(name)
	return f()
}

// loaded is what CheckNamespaces has loaded of namespaces, for the AddNamespace of the same subsystem that follows: by
// then a Store may fail that didn't. It is what the Store has, since what is saved is forgotten here. Others load anew:
// what was loaded for a change that failed may not be what the Store has by now.
type loaded struct {
	mu   sync.Mutex
	kept map[string]*loadedState
}

type loadedState struct {
	by   *Subsystem
	done bool
	data []byte
}

// load is store.Load, of what isn't there already for the subsystem. What is forgotten while it loads isn't kept.
func (l *loaded) load(by *Subsystem, name string) ([]byte, error) {
	l.mu.Lock()
	if s := l.kept[name]; s != nil && s.by == by && s.done {
		l.mu.Unlock()
		return s.data, nil
	}
	if l.kept == nil {
		l.kept = map[string]*loadedState{}
	}
	s := &loadedState{by: by}
	l.kept[name] = s
	l.mu.Unlock()
	b, err := by.t.store.Load(name) // it may hang, and others save meanwhile
	l.mu.Lock()
	defer l.mu.Unlock()
	s.done, s.data = err == nil, b
	return b, err
}

func (l *loaded) forget(names ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		delete(l.kept, name)
	}
}

// forgetOf forgets what was loaded for a subsystem.
func (l *loaded) forgetOf(by *Subsystem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.kept, func(_ string, s *loadedState) bool { return s.by == by })
}

// forgetLoaded forgets what was loaded of a namespace.
func (ns *Namespace) forgetLoaded() {
	for _, what := range namespaceStates {
		ns.sub.t.loaded.forget(ns.stateName(what), namespaceState(what, ns.formerUUID()))
	}
}
