package config

import (
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// Create lets the hosts of a subsystem create and delete namespaces, and attach and detach all
// of them.
type Create struct {
	Directory   string   `yaml:"directory"`             // where their volumes are kept; used by this subsystem alone
	Capacity    cli.Size `yaml:"capacity"`              // of all of them together
	Preallocate bool     `yaml:"preallocate,omitempty"` // reserve the space of each
}

// checkCreate checks what hosts may create in a subsystem; at is the subsystem's place in the
// file.
func (c *Config) checkCreate(at string, s *Subsystem) *FieldError {
	switch {
	case s.Create == nil:
		return nil
	case s.Create.Directory == "":
		return field(at+"create.directory", "", "it is missing: name a directory for the volumes that hosts create")
	case s.Create.Capacity <= 0:
		return field(at+"create.capacity", "", "it is missing: say how much hosts may create together, as 1TiB")
	case c.State == "":
		return field(at+"create", "", "what hosts create must outlive the program: give a state directory too")
	case len(s.Namespaces) >= target.FirstCreatedNSID:
		return field(at+"namespaces", "", "at most %d where hosts create namespaces too", target.FirstCreatedNSID-1)
	}
	for i := range s.Namespaces {
		if n := s.Namespaces[i].NSID; n >= target.FirstCreatedNSID {
			return field(at+"namespaces", "", "namespace %d: from %d on they are for namespaces that hosts create", n, target.FirstCreatedNSID)
		}
	}
	return nil
}
