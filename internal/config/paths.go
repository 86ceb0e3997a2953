package config

import (
	"fmt"
	"path/filepath"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
	"github.com/nvme-anywhere/nvmeof/persist"
)

// paths are the paths that the target makes or opens for itself, with what each is.
type paths map[string]use

// use is what a path is for.
type use struct {
	what   string // the subject of an error
	shared bool   // others may read it, too
}

// checkPaths refuses a path that is given for two things: at most one of them could be opened. It compares names and
// doesn't look at files, so it doesn't find a second name of one file.
func (c *Config) checkPaths() *FieldError {
	seen := paths{}
	for _, p := range []struct{ name, path, what string }{
		{"state", c.State, "the state directory"}, {"control", c.Control, "the control socket"}, {"pcap", c.Pcap, "the capture"},
	} {
		if err := seen.take(p.name, p.path, p.path, use{what: p.what}); err != nil {
			return err
		}
	}
	for i := range c.Subsystems {
		s, at := &c.Subsystems[i], fmt.Sprintf("subsystems[%d].", i)
		if s.Create != nil {
			if err := seen.take(at+"create.directory", s.Create.Directory, s.Create.Directory, use{what: "subsystem " + s.NQN}); err != nil {
				return err
			}
		}
		for j := range s.Namespaces {
			n := &s.Namespaces[j]
			_, path, _ := blockdev.SplitSpec(wrap.Innermost(n.Volume), persist.Kind())
			u := use{what: "another namespace of " + s.NQN, shared: n.ReadOnly}
			if err := seen.take(fmt.Sprintf("%snamespaces[%d].volume", at, j), n.Volume, path, u); err != nil {
				return err
			}
		}
	}
	return nil
}

// take adds a path, which may be "", of a field with a value.
func (ps paths) take(name, value, path string, u use) *FieldError {
	if path == "" {
		return nil
	}
	path = filepath.Clean(path)
	if other, twice := ps[path]; twice && (!other.shared || !u.shared) {
		return field(name, value, "%s has it too: give each its own", other.what)
	}
	ps[path] = u
	return nil
}
