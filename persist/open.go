package persist

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Kind is persistent memory as a kind that blockdev.Open knows by "pmem:PATH".
func Kind() blockdev.Kind {
	return blockdev.Kind{Name: "pmem", Form: "pmem:PATH", Open: Open}
}

// Open maps the file at path, which it creates where o has a size. o.IO has no meaning here.
func Open(path string, o blockdev.Options) (blockdev.Volume, error) {
	if path == "" {
		return nil, openError("pmem", blockdev.ErrInvalid, errors.New("it needs a path, as in pmem:/mnt/pmem/volume"))
	}
	f, size, err := blockdev.OpenLocked(path, &o)
	if err != nil {
		return nil, err
	}
	block := o.BlockSizeOr(blockdev.DefaultBlockSize)
	if err := blockdev.CheckSize(size, block); err != nil {
		f.Close()
		return nil, openError(path, blockdev.ErrInvalid, err)
	}
	m, err := mapFile(f, size, o.ReadOnly)
	if err != nil {
		f.Close()
		return nil, openError(path, blockdev.KindOf(err), err)
	}
	return newVolume(m, path, block, o.ReadOnly, flusher()), nil
}

func openError(path string, kind, err error) error {
	return &blockdev.OpError{Op: "open", Path: path, Offset: -1, Kind: kind, Err: err}
}

// newVolume makes the volume of a mapping. lines is nil where the processor can't flush them.
func newVolume(m *mapping, path string, block int, readOnly bool, lines *lineFlusher) *volume {
	size := int64(len(m.mem))
	v := &volume{
		info: blockdev.Info{
			Kind: "pmem", Path: path, Size: size,
			BlockSize: block, PhysBlock: max(block, pageSize), Align: 1, ReadOnly: readOnly,
		},
		m:      m,
		region: [1]*blockdev.Region{{Mem: m.mem}},
		life:   blockdev.NewLifetime(),
	}
	if m.dax {
		v.lines = lines
	}
	v.info.Mode = describe(m, v.lines)
	v.info.VolatileCache = !readOnly && v.lines == nil && !m.ram
	if !readOnly {
		v.info.Discard = punches(m.file, size)
		v.info.ZeroAfterDiscard = v.info.Discard
	}
	v.guard = blockdev.NewGuard(size, v.apply, v.applied)
	v.pool = blockdev.NewPool(poolSize, func(_ *struct{}, r *blockdev.Request) { v.run(r) })
	return v
}

// describe says how the volume is reached and what that promises.
func describe(m *mapping, lines *lineFlusher) string {
	switch {
	case lines != nil:
		return fmt.Sprintf("DAX on %s, %s: a completed write is durable, in place", m.fs, lines.name)
	case m.dax:
		return fmt.Sprintf("DAX on %s, msync: durable after Flush or FUA, in place", m.fs)
	case m.ram:
		return "mapped file on tmpfs: nothing survives the machine"
	}
	return fmt.Sprintf("mapped file on %s, msync: durable after Flush or FUA, in place", m.fs)
}

// punches tells whether the file system punches holes, by one behind the end of the file.
func punches(f *os.File, size int64) bool {
	st, err := f.Stat()
	return err == nil && st.Mode().IsRegular() &&
		unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, size, pageSize) == nil
}
