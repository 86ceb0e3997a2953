package blockdev

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"unsafe"

	"golang.org/x/sys/unix"
)

// halfway is a file of which one operation is done only half until it may go on.
type halfway struct {
	*kernel
	op            Op
	stopped, goOn chan struct{}
}

func stopHalfway(v *file, op Op) *halfway {
	s := &halfway{kernel: v.store.(*kernel), op: op, stopped: make(chan struct{}), goOn: make(chan struct{})}
	v.store = s
	return s
}

func (s *halfway) transfer(op Op, iov []unix.Iovec, off int64, flags int) (int64, error) {
	if op != s.op {
		return s.kernel.transfer(op, iov, off, flags)
	}
	s.op = 0
	whole := int(iov[0].Len)
	iov[0].SetLen(whole / 2)
	n, err := s.kernel.transfer(op, iov, off, flags)
	if err != nil {
		return n, err
	}
	close(s.stopped)
	<-s.goOn
	iov[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(iov[0].Base), n))
	iov[0].SetLen(whole - int(n))
	rest, err := s.kernel.transfer(op, iov, off+n, flags)
	return n + rest, err
}

// filled is a block of one byte, repeated.
func filled(x byte) []byte { return bytes.Repeat([]byte{x}, 4096) }

// submitted submits a request of one block.
func submitted(v *file, op Op, off int64, b []byte) (r *Request, done chan struct{}) {
	done = make(chan struct{})
	r = &Request{Op: op, Offset: off, Length: 4096, Bufs: [][]byte{b}, Complete: func(*Request) { close(done) }}
	v.Submit(r)
	return r, done
}

// openWhole opens a file in which a stripe shares its entry of a rangeLock's table with the first one.
func openWhole(t *testing.T) *file {
	v, err := OpenFile(filepath.Join(t.TempDir(), "v"), Options{Size: (rangeEntries + 1) * stripeSize, IO: IOBuffered})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	return v.(*file)
}

// TestReadMeetsWrite: a read of a block that is half written waits until it is written, however long that takes, and
// reads of all other blocks don't.
func TestReadMeetsWrite(t *testing.T) {
	for _, op := range []Op{OpWrite, OpWriteZeroes} {
		for _, workers := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, read by workers: %v", op, workers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { readMeetsWrite(t, op, workers) })
			})
		}
	}
}

func readMeetsWrite(t *testing.T, op Op, workers bool) {
	v := openWhole(t)
	v.noNow.Store(workers)
	v.noZeroRange.Store(true) // so that zeroes are written
	await(t, v, &Request{Op: OpWrite, Length: 4096, Bufs: [][]byte{filled(1)}})
	want := filled(2)
	if op == OpWriteZeroes {
		want = make([]byte, 4096)
	}
	s := stopHalfway(v, OpWrite)
	_, written := submitted(v, op, 0, want)
	<-s.stopped
	r, read := submitted(v, OpRead, 0, make([]byte, 4096))
	for _, off := range []int64{4096, rangeEntries * stripeSize} {
		other, read := submitted(v, OpRead, off, filled(1))
		if <-read; other.Err != nil || !bytes.Equal(other.Bufs[0], make([]byte, 4096)) {
			t.Errorf("a read at %d: %v, or other data", off, other.Err)
		}
	}
	synctest.Wait() // whoever could read has
	close(s.goOn)
	<-written
	if <-read; r.Err != nil || !bytes.Equal(r.Bufs[0], want) {
		t.Errorf("%v, or a block that is half old and half new: %d, %d", r.Err, r.Bufs[0][0], r.Bufs[0][4095])
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
}

// TestWriteMeetsRead: a write of a block that is half read waits until it is read, and other writes don't. What became
// unwanted meanwhile isn't written.
func TestWriteMeetsRead(t *testing.T) {
	v := openWhole(t)
	v.noNow.Store(true)
	await(t, v, &Request{Op: OpWrite, Length: 4096, Bufs: [][]byte{filled(1)}})
	s := stopHalfway(v, OpRead)
	r, read := submitted(v, OpRead, 0, make([]byte, 4096))
	<-s.stopped
	w, written := submitted(v, OpWrite, 0, filled(2))
	refused := make(chan error, 1)
	v.Submit(&Request{Op: OpWrite, Length: 4096, Bufs: [][]byte{filled(3)}, Unwanted: func() bool { return true },
		Complete: func(r *Request) { refused <- r.Err }})
	await(t, v, &Request{Op: OpWrite, Offset: 4096, Length: 4096, Bufs: [][]byte{filled(4)}})
	close(s.goOn)
	if <-read; r.Err != nil || !bytes.Equal(r.Bufs[0], filled(1)) {
		t.Errorf("%v, or a block that is half old and half new: %d, %d", r.Err, r.Bufs[0][0], r.Bufs[0][4095])
	}
	if <-written; w.Err != nil {
		t.Error(w.Err)
	}
	if err := <-refused; !errors.Is(err, ErrUnwanted) {
		t.Errorf("an unwanted write: %v", err)
	}
	r = &Request{Op: OpRead, Length: 4096, Bufs: [][]byte{make([]byte, 4096)}}
	if await(t, v, r); !bytes.Equal(r.Bufs[0], filled(2)) {
		t.Errorf("the block has %d, want what was written", r.Bufs[0][0])
	}
}

// TestUnwantedMeetsWrite: what became unwanted while it waited for its blocks changes nothing there, whatever it is.
func TestUnwantedMeetsWrite(t *testing.T) {
	for _, op := range []Op{OpWrite, OpWriteZeroes, OpDiscard} {
		v := openWhole(t)
		s := stopHalfway(v, OpWrite)
		_, written := submitted(v, OpWrite, 0, filled(1))
		<-s.stopped
		late := &Request{Op: op, Length: 4096, Unwanted: func() bool { return true }}
		if op == OpWrite {
			late.Bufs = [][]byte{filled(2)}
		}
		refused := make(chan error, 1)
		late.Complete = func(r *Request) { refused <- r.Err }
		v.Submit(late)
		close(s.goOn)
		<-written
		if err := <-refused; !errors.Is(err, ErrUnwanted) {
			t.Errorf("an unwanted %v: %v", op, err)
		}
		r := &Request{Op: OpRead, Length: 4096, Bufs: [][]byte{make([]byte, 4096)}}
		if await(t, v, r); !bytes.Equal(r.Bufs[0], filled(1)) {
			t.Errorf("an unwanted %v has changed the block to %d", op, r.Bufs[0][0])
		}
	}
}

// TestBlockHalfCached: a block of which the page cache has only a part is read by a worker as a whole.
func TestBlockHalfCached(t *testing.T) {
	const block = MaxBlockSize
	v, err := OpenFile(filepath.Join(t.TempDir(), "v"), Options{Size: 8 * block, BlockSize: block, IO: IOBuffered})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	f := v.(*file)
	for off := int64(0); off < 8*block; off += block / 2 { // so that the page cache can forget it in such pieces
		if _, err := f.locked.WriteAt(make([]byte, block/2), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.store.sync(); err != nil {
		t.Fatal(err)
	}
	const cached = 2*block + block/2
	if err := unix.Fadvise(f.store.(*kernel).ioFD, cached, 8*block-cached, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	r := &Request{Op: OpRead, Length: 8 * block, Bufs: [][]byte{make([]byte, 8*block)}, lane: f.lanes.all[0]}
	if f.now(r) {
		t.Skip("the page cache has it all")
	}
	if r.done%block != 0 {
		t.Errorf("a worker continues after %d bytes, within a block", r.done)
	}
}
