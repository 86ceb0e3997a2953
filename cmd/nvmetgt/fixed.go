package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// fixed rejects changes of settings that can't be changed.
func (s *server) fixed(next *config.Config) error {
	if err := same("", fixedSettings(s.cfg), fixedSettings(next), errRestart); err != nil {
		return err
	}
	for i := range next.Subsystems {
		to := &next.Subsystems[i]
		from := s.cfg.Subsystem(to.NQN)
		if from == nil {
			continue
		}
		at := fmt.Sprintf("subsystems[%d].", i)
		if err := same(at, identity(from), identity(to), errIdentity); err != nil {
			return err
		}
		if err := same(at, config.Subsystem{Create: from.Create}, config.Subsystem{Create: to.Create}, errCreation); err != nil {
			return err
		}
		for j := range to.Namespaces {
			n := from.Namespace(to.Namespaces[j].NSID)
			if n == nil {
				continue
			}
			was, is := s.explicit(to.NQN, *n, to.Namespaces[j])
			if err := same(fmt.Sprintf("%snamespaces[%d].", at, j), was, is, errNamespace); err != nil {
				return err
			}
		}
	}
	return nil
}

// Causes of errors about settings that can't be changed.
var (
	errRestart   = errors.New("it can't be changed while the program runs: restart it")
	errIdentity  = errors.New("hosts know it by this: remove the subsystem and add it anew")
	errCreation  = errors.New("where hosts create namespaces can't be changed: remove the subsystem and add it anew")
	errNamespace = errors.New("hosts use it as it is: remove the namespace, then add it anew")
)

// same returns an error with a cause if two structs of a configuration, which are at a place in the file, differ.
func same(at string, from, to any, cause error) error {
	name, was, is := config.Difference(from, to)
	if name == "" {
		return nil
	}
	return fmt.Errorf("%s%s: from %s to %s: %w", at, name, nvme.Shown(was), nvme.Shown(is), cause)
}

// fixedSettings returns only what needs a restart, with the defaults filled in.
func fixedSettings(c *config.Config) config.Config {
	drain := config.Duration(c.Drain())
	return config.Config{
		Network: c.Network.Explicit(), Limits: c.Limits.Explicit(), Discovery: config.Discovery{NQN: c.Discovery.NQN},
		State: c.State, Metrics: c.Metrics, Control: c.Control, Pcap: c.Pcap, Log: c.Log.Explicit(), DrainTimeout: &drain,
	}
}

// identity returns only what hosts know a subsystem by, and how many of them it has, with the defaults filled in.
func identity(s *config.Subsystem) config.Subsystem {
	return config.Subsystem{
		Serial: cmp.Or(s.Serial, target.DeriveSerial(s.NQN)), Model: cmp.Or(s.Model, target.DefaultModel),
		MaxControllers: s.MaxControllers,
	}
}

// explicit returns what a namespace is and will be such that they are equal if it stays the same. If a volume has
// grown, files have its size from when they were written, before, during or after that: the program's own file, and one
// that ctl read and modified. A file may also leave out the size, which only a volume that is created needs, the size
// of blocks, and the UUID, or state what they are.
func (s *server) explicit(nqn string, n, to config.Namespace) (was, is config.Namespace) {
	if e := s.exports[exportKey{nqn, n.NSID}]; e != nil {
		if to.Size == 0 || e.grown(int64(to.Size)) {
			n.Size = to.Size
		}
		info := e.volume.Info()
		bs := cli.Size(info.BlockSize)
		n.BlockSize, to.BlockSize = cmp.Or(n.BlockSize, bs), cmp.Or(to.BlockSize, bs)
		n.UUID, to.UUID = explicitUUID(nqn, &n, &info), explicitUUID(nqn, &to, &info)
	}
	return n.Explicit(), to.Explicit()
}

// explicitUUID returns the UUID of a namespace; nil if it has another one in each run.
func explicitUUID(nqn string, n *config.Namespace, volume *blockdev.Info) *config.UUID {
	if n.UUID != nil && *n.UUID != (config.UUID{}) {
		return n.UUID
	}
	uuid, lasts := target.DeriveUUID(nqn, n.NSID, volume)
	if !lasts {
		return nil
	}
	return (*config.UUID)(&uuid)
}
