package blockdev

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
)

// openInternal opens a file of 1 MiB in a mode that isn't available everywhere.
func openInternal(t *testing.T, mode IOMode) *file {
	t.Helper()
	v, err := OpenFile(filepath.Join(t.TempDir(), "v"), Options{Size: 1 << 20, IO: mode})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { v.Close() })
	return v.(*file)
}

// await submits requests together and waits for all.
func await(t *testing.T, v Volume, all ...*Request) {
	t.Helper()
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Add(1)
		r.Complete = func(*Request) { wg.Done() }
		v.Submit(r)
	}
	wg.Wait()
	for _, r := range all {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// TestAlignment: buffers are aligned as statx says, no more and no less.
func TestAlignment(t *testing.T) {
	v := openInternal(t, IODirect)
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, v.info.Path, 0, unix.STATX_DIOALIGN, &st); err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		t.Skipf("this system doesn't tell: %v", err)
	}
	mem, unit := int(st.Dio_mem_align), int(st.Dio_offset_align)
	if v.align != (alignment{mem: mem, unit: unit}) || v.Info().Align != mem {
		t.Errorf("alignment %+v, told as %d; statx says %d and %d", v.align, v.Info().Align, mem, unit)
	}
	room := directio.AlignedBlock(4 * directio.AlignSize)
	r := &Request{Op: OpWrite, Length: 4096, Bufs: [][]byte{room[mem:][:4096]}}
	if v.misaligned(r) {
		t.Errorf("a buffer at %d bytes is copied", mem)
	}
	await(t, v, r)
	if r.Bufs[0] = room[mem/2:][:4096]; mem > 1 && !v.misaligned(r) {
		t.Errorf("a buffer at %d bytes isn't copied", mem/2)
	}
}

// TestReadOnlyFiles: a read-only volume has no open file through which it could be written.
func TestReadOnlyFiles(t *testing.T) {
	path := openInternal(t, IODirect).info.Path
	for _, mode := range []IOMode{IODirect, IOBuffered} {
		for _, readOnly := range []bool{false, true} {
			other := path + ".copy"
			if err := os.WriteFile(other, make([]byte, 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			opened, err := OpenFile(other, Options{IO: mode, ReadOnly: readOnly})
			if err != nil {
				t.Fatal(err)
			}
			k := opened.(*file).store.(*kernel)
			for _, fd := range []int{k.ioFD, k.lockedFD} {
				flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
				if err != nil || flags&unix.O_ACCMODE == unix.O_RDONLY != readOnly {
					t.Errorf("read-only %v: flags %#x, %v", readOnly, flags, err)
				}
			}
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSectorUntold: if the system doesn't tell the unit of direct I/O, as before Linux 6.1, a block may be torn if it
// is larger than the known sector, or than the smallest possible sector if none is known.
func TestSectorUntold(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	sandbox.Refuse(t, unix.SYS_STATX, unix.ENOSYS)
	v := openInternal(t, IODirect)
	known := physicalSector(v.locked)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	for _, block := range []int{512, 4096, 64 << 10} {
		v, err := OpenFile(v.info.Path, Options{BlockSize: block, IO: IODirect})
		if err != nil {
			t.Logf("blocks of %d bytes: %v", block, err)
			continue
		}
		want := 0
		if block <= max(known, 512) {
			want = 1
		}
		if n := v.Info().AtomicBlocks; n != want {
			t.Errorf("%d blocks of %d bytes are written whole, on sectors of %d; want %d", n, block, known, want)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
}

// watchedStorage notes what the system is asked to do.
type watchedStorage struct {
	storage
	asked []string
	lacks error // what the file system answers to fallocate
}

func (w *watchedStorage) transfer(op Op, iov []unix.Iovec, off int64, flags int) (int64, error) {
	w.asked = append(w.asked, op.String())
	return w.storage.transfer(op, iov, off, flags)
}

func (w *watchedStorage) allocate(mode uint32, off, n int64) error {
	name := map[uint32]string{punchHole: "punch hole", zeroRange: "zero range"}[mode]
	err := w.lacks
	if err == nil {
		err = w.storage.allocate(mode, off, n)
	}
	if err != nil {
		name = "no " + name
	}
	w.asked = append(w.asked, name)
	return err
}

// haltingStorage transfers half of each request, and nothing beyond a certain offset.
type haltingStorage struct {
	storage
	end int64
}

func (h *haltingStorage) transfer(op Op, iov []unix.Iovec, off int64, flags int) (int64, error) {
	if off >= h.end {
		return 0, unix.ENOSPC
	}
	iov[0].SetLen(int(iov[0].Len+1) / 2)
	return h.storage.transfer(op, iov[:1], off, flags)
}

// TestZeroesInPieces: writing zeroes continues behind what the system has accepted, and an error says where.
func TestZeroesInPieces(t *testing.T) {
	v := openInternal(t, IOBuffered)
	v.noZeroRange.Store(true)
	ones := bytes.Repeat([]byte{1}, 1<<20)
	await(t, v, &Request{Op: OpWrite, Length: 1 << 20, Bufs: [][]byte{ones}})
	was := v.store
	v.store = &haltingStorage{storage: was, end: 1 << 20}
	await(t, v, &Request{Op: OpWriteZeroes, Offset: 4096, Length: 600 << 10})
	v.store = &haltingStorage{storage: was, end: 900 << 10}
	done := make(chan struct{})
	r := &Request{Op: OpWriteZeroes, Offset: 896 << 10, Length: 16 << 10, Complete: func(*Request) { close(done) }}
	v.Submit(r)
	<-done
	var op *OpError
	if !errors.As(r.Err, &op) || !errors.Is(op, ErrCapacity) || op.Offset != 904<<10 {
		t.Errorf("no room from 900 KiB on, pieces of 8 KiB: %v", r.Err)
	}
	v.store = was
	clear(ones[4096:][:600<<10])
	clear(ones[896<<10:][:8<<10])
	got := make([]byte, len(ones))
	await(t, v, &Request{Op: OpRead, Length: 1 << 20, Bufs: [][]byte{got}})
	if !bytes.Equal(got, ones) {
		t.Error("other bytes than those are zeroes")
	}
}

// TestZeroesOfTheFileSystem: the file system zeroes ranges itself if it can; otherwise zeroes are written.
func TestZeroesOfTheFileSystem(t *testing.T) {
	v := openInternal(t, IOBuffered)
	w := &watchedStorage{storage: v.store}
	v.store = w
	for _, x := range []struct {
		r    Request
		want string
	}{
		{Request{Op: OpWriteZeroes, Length: 64 << 10}, "zero range"},
		{Request{Op: OpWriteZeroes, Length: 64 << 10, MayUnmap: true}, "punch hole"},
		{Request{Op: OpDiscard, Length: 64 << 10}, "punch hole"},
	} {
		w.asked = nil
		await(t, v, &x.r)
		got := strings.Join(w.asked, ", ")
		if got == "no "+x.want || strings.HasPrefix(got, "no "+x.want+", ") {
			t.Skipf("the file system has none: %s", got)
		}
		if got != x.want {
			t.Errorf("%s, may unmap %t: the system is asked for %q, want %q", x.r.Op, x.r.MayUnmap, got, x.want)
		}
	}
	for _, x := range []struct {
		lacks error
		want  string
	}{
		{unix.EINVAL, "no punch hole, no zero range, write"}, // for this range
		{unix.EOPNOTSUPP, "no punch hole, no zero range, write"},
		{unix.EOPNOTSUPP, "write"},
	} {
		w.asked, w.lacks = nil, x.lacks
		await(t, v, &Request{Op: OpWriteZeroes, Length: 64 << 10, MayUnmap: true})
		if got := strings.Join(w.asked, ", "); got != x.want {
			t.Errorf("where the file system's ways fail with %v it is asked for %q, want %q", x.lacks, got, x.want)
		}
	}
	w.asked = nil
	await(t, v, &Request{Op: OpDiscard, Length: 64 << 10})
	if w.asked != nil {
		t.Errorf("a discard asks for %q", w.asked)
	}
}
