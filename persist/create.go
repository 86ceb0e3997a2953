package persist

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// Format makes an existing file or device an empty volume, as large as it allows; its content is lost. blockSize 0
// means blockdev.DefaultBlockSize.
func Format(path string, blockSize int) error {
	o := blockdev.Options{BlockSize: blockSize}
	f, size, _, err := blockdev.OpenLocked(path, &o)
	if err != nil {
		return err
	}
	m, err := mapFile(f, size, false)
	if err != nil {
		f.Close()
		return blockdev.OpenError(path, mapKind(err), err)
	}
	block := o.BlockSizeOr(blockdev.DefaultBlockSize)
	if rec, ok := fit(0, headSize, uint64(size), block, m.cached()); ok {
		err = format(m, newID(), rec, block, flusher())
	} else {
		err = blockdev.OpenError(path, blockdev.ErrInvalid, errors.New("it is too small: a volume needs 5 MiB and more"))
	}
	return openError(path, errors.Join(err, m.close()))
}

// format makes a file an empty volume of one extent.
func format(m *mapping, id [16]byte, rec extentRecord, blockSize int, lines *lineFlusher) error {
	s := &superblock{generation: 1, blockSize: blockSize, id: id, extents: []extentRecord{rec}}
	if err := m.clear(m.mem[:rec.dataOff], 0); err != nil {
		return err
	}
	if err := errors.Join(m.sync(), m.syncFile()); err != nil { // before anything says that they are maps
		return err
	}
	if err := m.put(m.mem[superSize:headSize], s.encode()); err != nil {
		return err
	}
	if m.dax && lines != nil {
		if err := m.persist(m.mem[superSize:headSize], lines); err != nil {
			return err
		}
	}
	return errors.Join(m.sync(), m.syncFile())
}

// newID returns an identifier for a volume, which also salts its entries.
func newID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // it can't fail
	return id
}

// fileSize returns how large the file of a volume of size bytes is.
func fileSize(size int64, block int, cached bool) int64 {
	rec := layOut(0, headSize, uint64(size/int64(block)), block, cached)
	return int64(alignUp(rec.end(block), areaAlign))
}

// holdsNothing reports whether a regular file consists only of holes and zeroes, as after a crash that interrupted its
// creation: it can be formatted without losing anything.
func holdsNothing(f *os.File) bool {
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return false
	}
	b := make([]byte, 1<<20)
	for off := int64(0); ; {
		if off, err = f.Seek(off, unix.SEEK_DATA); err != nil {
			return errors.Is(err, unix.ENXIO)
		}
		n, err := f.ReadAt(b, off)
		if len(bytes.TrimLeft(b[:n], "\x00")) > 0 || err != nil && !errors.Is(err, io.EOF) {
			return false
		}
		off += int64(n)
	}
}
