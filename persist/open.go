package persist

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// Kind returns persistent memory as a kind that blockdev.Open knows as "pmem:PATH".
func Kind() blockdev.Kind {
	return blockdev.Kind{
		Name: "pmem", Form: "pmem:PATH[,mode=inplace]", Open: Open,
		Path: func(arg string) string { return strings.TrimSuffix(arg, modeInPlace) },
		Check: func(arg string, _ blockdev.Options) error {
			_, _, err := parseArg(arg)
			return err
		},
	}
}

// modeInPlace at the end of a path requests a volume whose blocks are overwritten.
const modeInPlace = ",mode=inplace"

// anOption matches what looks like an option behind a path.
var anOption = regexp.MustCompile(`,[a-z]+=[^/]*$`)

// Open maps the file that arg names, and creates it if o has a size. It writes out of place, in the format of
// docs/pmem.md, or in place if arg ends in ",mode=inplace". o.IO has no effect.
func Open(arg string, o blockdev.Options) (v blockdev.Volume, err error) {
	path, inPlace, err := parseArg(arg)
	if err != nil {
		return nil, err
	}
	open := openAtomic
	if inPlace {
		open = openInPlace
	}
	aio.Apart(func() { v, err = open(path, o) })
	return v, err
}

// parseArg parses what follows "pmem:".
func parseArg(arg string) (path string, inPlace bool, err error) {
	path, inPlace = strings.CutSuffix(arg, modeInPlace)
	if path == "" {
		return "", false, blockdev.OpenError("pmem", blockdev.ErrInvalid, errors.New("it needs a path, as in pmem:/mnt/pmem/volume"))
	}
	if m := anOption.FindString(path); m != "" {
		return "", false, blockdev.OpenError(path, blockdev.ErrInvalid, fmt.Errorf("unknown option %q: the only one is mode=inplace", m[1:]))
	}
	return path, inPlace, nil
}

// openInPlace opens a volume that consists of just the file's bytes.
func openInPlace(path string, o blockdev.Options) (blockdev.Volume, error) {
	f, size, undo, err := blockdev.OpenLocked(path, &o)
	if err != nil {
		return nil, err
	}
	block := o.BlockSizeOr(blockdev.DefaultBlockSize)
	fail := func(kind, err error) (blockdev.Volume, error) {
		undo()
		f.Close()
		return nil, blockdev.OpenError(path, kind, err)
	}
	if err := blockdev.CheckSize(size, block); err != nil {
		return fail(blockdev.ErrInvalid, err)
	}
	m, err := mapFile(f, size, o.ReadOnly)
	if err != nil {
		return fail(mapKind(err), err)
	}
	if kind, err := maySpoil(m); err != nil {
		undo()
		_ = m.close()
		return nil, blockdev.OpenError(path, kind, err)
	}
	return newVolume(m, path, block, o.ReadOnly, flusher()), nil
}

// newVolume returns the volume of a mapping. lines is nil if the processor can't flush them.
func newVolume(m *mapping, path string, block int, readOnly bool, lines *lineFlusher) *volume {
	size := int64(len(m.mem))
	v := &volume{
		info: blockdev.Info{
			Kind: "pmem", Path: path, Size: size,
			BlockSize: block, PhysBlock: max(block, pageSize), Align: 1, ReadOnly: readOnly,
		},
		m:        m,
		sync:     syncBytes,
		syncFile: m.syncFile,
		region:   [1]*blockdev.Region{{Mem: m.mem, File: true}},
		life:     blockdev.NewLifetime(),
	}
	if m.dax {
		v.lines = lines
	}
	v.info.Mode = describe(m, v.lines)
	v.info.VolatileCache = !readOnly && v.lines == nil && !m.ram
	if !readOnly {
		v.info.Discard = m.punches(size)
		v.info.ZeroAfterDiscard = v.info.Discard
	}
	v.guard = blockdev.NewGuard(size, v.apply, v.applied)
	v.flushes = blockdev.NewFlushGroup(func() error { return v.durably(v.syncAll) }, v.finish)
	v.pool = blockdev.NewPool(poolSize, func(_ *struct{}, r *blockdev.Request) { v.run(r) })
	return v
}

// describe says how the volume is accessed and what that promises.
func describe(m *mapping, lines *lineFlusher) string {
	switch {
	case lines != nil:
		return fmt.Sprintf("DAX on %s, %s: a completed write is durable, in place", m.fs, lines.name)
	case m.dax:
		return fmt.Sprintf("DAX on %s, msync: durable after Flush or FUA, in place", m.fs)
	case m.ram:
		return fmt.Sprintf("mapped file on %s: nothing survives the machine", m.fs)
	}
	return fmt.Sprintf("mapped file on %s, msync: durable after Flush or FUA, in place", m.fs)
}

// punches reports whether the file system can punch holes, by punching one beyond the end of the file.
func (m *mapping) punches(size int64) bool {
	st, err := m.file.Stat()
	return err == nil && st.Mode().IsRegular() && !m.keepsPages() && m.punch(size, pageSize) == nil
}
