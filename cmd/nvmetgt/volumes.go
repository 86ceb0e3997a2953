package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/persist"
)

// ioModes are the values of --io.
var ioModes = map[string]blockdev.IOMode{
	"auto": blockdev.IOAuto, "uring": blockdev.IOUring, "direct": blockdev.IODirect, "buffered": blockdev.IOBuffered,
}

// openVolumes opens what is to be exported, in order.
func (s *server) openVolumes() error {
	o := blockdev.Options{
		Size: int64(s.flags.size), BlockSize: int(s.flags.blockSize), ReadOnly: s.flags.readOnly,
		Preallocate: s.flags.preallocate, IO: ioModes[s.flags.io],
	}
	kinds := wrap.Kinds(persist.Kind())
	for _, spec := range s.flags.volumes {
		o := o
		if kind, size, _ := strings.Cut(wrap.Innermost(spec), ":"); size != "" && (kind == "mem" || kind == "null") {
			o.Size = 0 // it has its own; --size is for the others
		}
		v, err := blockdev.Open(spec, o, kinds...)
		if err != nil {
			return volumeError(spec, &o, err)
		}
		s.volumes = append(s.volumes, v)
		s.onClose(v.Close)
		i := v.Info()
		if i.AtomicBlocks == 0 && !i.ReadOnly {
			s.log.Warn("a power failure may leave a block half written, which NVMe has no way to tell hosts",
				"namespace", len(s.volumes), "volume", i.Name(), "remedy", "direct I/O and blocks no larger than the device's sectors, as --block-size 512")
		}
		s.log.Info("volume opened", "namespace", len(s.volumes), "volume", i.Name(), "size", i.Size,
			"block", i.BlockSize, "path", i.Mode, "volatile_cache", i.VolatileCache, "atomic_blocks", i.AtomicBlocks)
	}
	return nil
}

// volumeError says in terms of the command line why a volume can't be opened. It is a mistake
// on the command line where no file has a part in it.
func volumeError(spec string, o *blockdev.Options, err error) error {
	var op *blockdev.OpError
	if !errors.As(err, &op) || op.Err == nil {
		return cli.Say(err, "--volume %s: %v", spec, err)
	}
	text := op.Err.Error()
	_, statErr := os.Stat(op.Path)
	_, dirErr := os.Stat(filepath.Dir(op.Path))
	switch {
	case errors.Is(err, blockdev.ErrBusy):
		text = op.Kind.Error() + ": " + text
	case errors.Is(err, fs.ErrNotExist) && dirErr == nil && o.Size == 0 && !o.ReadOnly:
		text = "no such file: check the name, or create it with --size, as --size 1GiB"
	}
	err = cli.Say(err, "--volume %s: %s", spec, text)
	if errors.Is(err, blockdev.ErrInvalid) && !errors.Is(err, fs.ErrNotExist) && statErr != nil {
		return &cli.UsageError{Err: err}
	}
	return err
}
