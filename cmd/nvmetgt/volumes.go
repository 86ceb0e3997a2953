package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/standstill"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
	"github.com/nvme-anywhere/nvmeof/persist"
)

// exportKey identifies a namespace of a target.
type exportKey struct {
	nqn  string
	nsid uint32
}

// export is an exported volume.
type export struct {
	volume  blockdev.Volume
	file    os.FileInfo // of its file, when it was opened; nil if there is none
	opened  int64       // its size then
	created bool        // its file was, then
	remove  func()      // removes its figures
}

func (e *export) close() error {
	e.remove()
	return e.volume.Close()
}

// abandon closes a volume that no host has seen. A file that was created for it is removed: if it stayed, the next
// attempt could not create it with another size.
func (e *export) abandon() error {
	var err error
	if e.created {
		err = os.Remove(e.volume.Info().Path)
	}
	return errors.Join(err, e.close())
}

// openExport opens the volume of a namespace.
func (s *server) openExport(key exportKey, n *config.Namespace) (*export, error) {
	e := &export{}
	o := n.Options()
	o.Created = &e.created
	v, err := blockdev.Open(n.Volume, o, config.VolumeKinds()...)
	if err != nil {
		return nil, s.volumeError(n.Volume, &o, err)
	}
	i := v.Info()
	e.file, _ = os.Stat(i.Path)
	if i.Kind == "file" {
		standstill.Spare()
		if persist.Holds(i.Path) {
			s.log.Warn("it looks like persistent memory, which hosts don't get to see as its volume this way, and may destroy",
				"subsystem", key.nqn, "nsid", key.nsid, "volume", i.Name(), "remedy", "pmem: before its path")
		}
	}
	s.log.Debug("volume opened", "subsystem", key.nqn, "nsid", key.nsid, "volume", i.Name(), "size", i.Size,
		"block", i.BlockSize, "path", i.Mode, "volatile_cache", i.VolatileCache, "atomic_blocks", i.AtomicBlocks)
	if i.AtomicBlocks == 0 && !i.ReadOnly {
		remedy := "direct I/O and blocks no larger than the device's sectors, as --block-size 512"
		if i.Kind == "pmem" {
			remedy = "leave mode=inplace out"
		}
		s.log.Warn("a power failure may leave a block half written, which NVMe has no way to tell hosts",
			"subsystem", key.nqn, "nsid", key.nsid, "volume", i.Name(),
			"remedy", remedy)
	}
	e.volume, e.opened, e.remove = v, i.Size, s.figures.AddVolume(key.volumeName(), v)
	return e, nil
}

// grown reports whether a size is between that with which the volume was opened and its current one.
func (e *export) grown(size int64) bool {
	now := e.volume.Info().Size
	return min(e.opened, now) <= size && size <= max(e.opened, now)
}

// hasOwnSize reports whether a volume's specification includes its size.
func hasOwnSize(spec string) bool {
	kind, size, _ := strings.Cut(wrap.Innermost(spec), ":")
	return size != "" && (kind == "mem" || kind == "null")
}

// absolute returns the specification with an absolute path, so that another program, which runs elsewhere, opens
// the intended file.
func absolute(spec string) (string, error) {
	inner := wrap.Innermost(spec)
	before, path, behind := blockdev.SplitSpec(inner, persist.Kind())
	if path == "" {
		return spec, nil
	}
	if kind, _, found := strings.Cut(path, ":"); found && before == "" && !strings.Contains(kind, "/") {
		if _, err := os.Stat(path); err != nil { // an existing file may have a colon in its name; anything else is an unknown kind
			return spec, nil //nolint:nilerr // opening it says so
		}
	}
	path, err := filepath.Abs(path)
	return strings.TrimSuffix(spec, inner) + before + path + behind, err
}

// volumeName is the volume's name in figures.
func (k exportKey) volumeName() string { return fmt.Sprintf("%s/%d", k.nqn, k.nsid) }

// namespace returns the engine's configuration for an export.
func (e *export) namespace(n *config.Namespace) target.NamespaceConfig {
	c := target.NamespaceConfig{NSID: n.NSID, Volume: e.volume, ANAGroup: n.ANAGroup}
	if n.UUID != nil {
		c.UUID = *n.UUID
	}
	if n.NGUID != nil {
		c.NGUID = *n.NGUID
	}
	if n.EUI64 != nil {
		c.EUI64 = *n.EUI64
	}
	return c
}

// volumeError says in terms of the configuration why a volume can't be opened. It is a user error if no file is
// involved.
func (s *server) volumeError(spec string, o *blockdev.Options, err error) error {
	name := s.mark + "volume"
	var op *blockdev.OpError
	if !errors.As(err, &op) || op.Err == nil {
		return cli.Say(err, "%s %s: %v", name, spec, err)
	}
	text := op.Err.Error()
	_, statErr := os.Lstat(op.Path)
	_, dirErr := os.Stat(filepath.Dir(op.Path))
	switch {
	case op.Op == "lock": // while another program holds the lock it is "open"
		text = "lock: " + text + ": its lock keeps other programs out; mount the file system with locks (flock on Lustre, local_lock=flock on NFS), or name a file elsewhere"
	case errors.Is(err, blockdev.ErrBusy):
		text = op.Kind.Error() + ": " + cmp.Or(s.user(op.Path), text)
	case errors.Is(err, unix.EFBIG):
		text += ": " + blockdev.TooLargeRemedy()
	case errors.Is(err, fs.ErrNotExist) && statErr != nil && dirErr == nil && o.Size == 0 && !o.ReadOnly:
		size := "size: 1GiB" // in a configuration
		if s.mark != "" {
			size = s.mark + "size 1GiB"
		}
		text = "no such file: check the name, or create it with a size, as " + size
	}
	err = cli.Say(err, "%s %s: %s", name, spec, text)
	if errors.Is(err, blockdev.ErrInvalid) && !errors.Is(err, fs.ErrNotExist) && statErr != nil {
		return &cli.UsageError{Err: err}
	}
	return err
}

// user says which namespace of this target has a file, and what to do; it returns "" if none has. The change lock is
// held, or no other goroutine exists yet.
func (s *server) user(path string) string {
	file, err := os.Stat(path)
	if err != nil {
		return ""
	}
	has := func(e *export) bool { return os.SameFile(file, e.file) }
	for key, e := range s.exports {
		if has(e) {
			return fmt.Sprintf("namespace %d of %s has it; name another file, or remove that namespace first, and add this one then", key.nsid, key.nqn)
		}
	}
	s.now.Lock()
	going := slices.Collect(maps.Keys(s.going))
	s.now.Unlock()
	if slices.ContainsFunc(going, has) {
		return "a namespace that was removed has it until its last command has ended; try again then"
	}
	return ""
}
