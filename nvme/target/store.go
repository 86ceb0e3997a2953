package target

import (
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Store keeps what must outlive the target, and power failures: reservations that persist, blocks that
// are marked, write protection, what hosts make of a subsystem's namespaces, sanitize operations and
// events. Package statedir has one.
type Store interface {
	// Load gives what was saved last under a name; nil where nothing was.
	Load(name string) ([]byte, error)
	// Save replaces what is kept under a name. When it returns without an error the new
	// content survives a power failure; after an error, or a failure before it returns, the
	// old one or the new one does, whole. It may block.
	Save(name string, data []byte) error
	// Delete forgets what is kept under a name, where there is something.
	Delete(name string) error
}

// What is stored of a namespace lies under its UUID. Where that is given, it says that the namespace is the same,
// whatever volume it has: who moves a volume takes the UUID along. A UUID that is derived from the NSID says nothing of
// the volume: an operator who removes a namespace, and adds another volume under its NSID, has a new namespace, to
// which no host has registered and of which no block is marked. So it is stored of which volume something is.

// storedState is what is stored of a namespace.
type storedState struct {
	Volume string          `json:"volume"`
	State  json.RawMessage `json:"state"`
}

// stateVolume is what the volume is called there. Relative paths count from where the program runs.
func (ns *Namespace) stateVolume() string {
	path := ns.info.Path
	if abs, err := filepath.Abs(path); err == nil && path != "" {
		path = abs
	}
	return ns.info.Kind + ":" + path
}

// loadState gives what was saved last under a name; nil where nothing was, or of another volume.
func (ns *Namespace) loadState(name string) ([]byte, error) {
	b, err := ns.sub.t.store.Load(name)
	if err != nil || b == nil {
		return nil, err
	}
	var s storedState
	if json.Unmarshal(b, &s) != nil || s.State == nil {
		return b, nil //nolint:nilerr // it doesn't say of which volume it is
	}
	if ns.derived && s.Volume != ns.stateVolume() {
		ns.others = append(ns.others, s.Volume)
		return nil, nil
	}
	return s.State, nil
}

// saving makes a change that is saved, where anything is: elsewhere then, as that takes time. Who opens the directory
// next finds it ended.
func (r *Request) saving(change func()) {
	c := r.engine.q.ctrl
	if c.t.store == nil {
		change()
		return
	}
	c.sub.work.Go(change)
}

// saveState saves something as the volume's.
func (ns *Namespace) saveState(name string, state any) error {
	b, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if b, err = json.Marshal(storedState{ns.stateVolume(), b}); err != nil {
		return err
	}
	return ns.sub.save(name, append(b, '\n'))
}

// stateName is where something of the subsystem is stored.
func (s *Subsystem) stateName(what string) string {
	return what + "-" + nvme.HostID(deriveUUID(s.nqn, 0)).String()
}

// save is the Store's, while the subsystem isn't closed. A command of a host that is being disconnected may come after
// that, and another subsystem have the name by then, or another program the Store.
func (s *Subsystem) save(name string, data []byte) error {
	return s.storing(func() error { return s.t.store.Save(name, data) })
}

// unsave forgets what is kept under a name, likewise.
func (s *Subsystem) unsave(name string) error {
	return s.storing(func() error { return s.t.store.Delete(name) })
}

var errSubsystemClosed = errors.New("the subsystem is closed")

func (s *Subsystem) storing(f func() error) error {
	s.stored.RLock()
	defer s.stored.RUnlock()
	if s.storedAll {
		return errSubsystemClosed
	}
	return f()
}

// sayOthers logs that what is stored is of another volume.
func (ns *Namespace) sayOthers() {
	if len(ns.others) > 0 {
		ns.sub.t.log.Warn("reservations, marks and write protection of another volume are left alone",
			"subsystem", ns.sub.nqn, "nsid", ns.nsid, "volume", ns.stateVolume(), "of", ns.others[0],
			"remedy", "where the volume is the same, give the namespace the UUID that hosts know it by")
	}
}
