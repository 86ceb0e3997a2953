package blockdev

import (
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// syncCounter is a storage that counts syncs; they fail if err is set.
type syncCounter struct {
	storage
	syncs int
	err   error
}

func (s *syncCounter) sync() error {
	s.syncs++
	return s.err
}

// TestCloseSyncs: Close makes durable what was written, and reports if it couldn't. A read-only volume has nothing to
// make durable.
func TestCloseSyncs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	for _, x := range []struct {
		o     Options
		err   error
		syncs int
	}{
		{Options{Size: 1 << 20, IO: IOBuffered}, nil, 1},
		{Options{IO: IOBuffered}, unix.EIO, 1},
		{Options{IO: IOBuffered, ReadOnly: true}, unix.EIO, 0},
	} {
		opened, err := OpenFile(path, x.o)
		if err != nil {
			t.Fatal(err)
		}
		v := opened.(*file)
		s := &syncCounter{storage: v.store, err: x.err}
		v.store = s
		err = v.Close()
		if fails := x.err != nil && x.syncs > 0; s.syncs != x.syncs || errors.Is(err, ErrMedium) != fails || (err != nil) != fails {
			t.Errorf("%+v: %d syncs, %v", x.o, s.syncs, err)
		}
	}
}

// TestCloseGone: if what is written can't be made durable since the device was removed, Close says so, though the system
// says EIO.
func TestCloseGone(t *testing.T) {
	v := openInternal(t, IOBuffered)
	v.below = Below(filepath.Join(t.TempDir(), "removed"))
	v.store = &syncCounter{storage: v.store, err: unix.EIO}
	if err := v.Close(); !errors.Is(err, ErrGone) || !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
}

// TestCloseOwed: if a sync for a write with FUA failed, which the system reports once, Close reports that other writes
// may be lost, unless a flush has reported it.
func TestCloseOwed(t *testing.T) {
	for flushes := range 3 {
		path := filepath.Join(t.TempDir(), "v")
		synctest.Test(t, func(t *testing.T) { testCloseOwed(t, path, flushes) })
	}
}

func testCloseOwed(t *testing.T, path string, flushes int) {
	opened, err := OpenFile(path, Options{Size: 1 << 20, IO: IOBuffered})
	if err != nil {
		t.Fatal(err)
	}
	v := opened.(*file)
	s := &syncCounter{storage: v.store}
	v.store = s
	submit := func(r *Request) error {
		r.Complete = func(*Request) {}
		v.Submit(r)
		synctest.Wait() // Complete has returned, too: a flush that is submitted earlier may report the failure again
		return r.Err
	}
	write := func(fua bool) *Request {
		return &Request{Op: OpWrite, FUA: fua, Offset: 8192, Length: 4096, Bufs: [][]byte{make([]byte, 4096)}}
	}
	if err := submit(write(false)); err != nil {
		t.Fatal(err)
	}
	s.err = unix.EIO
	err = submit(write(true))
	var op *OpError
	if !errors.As(err, &op) || !errors.Is(err, ErrMedium) || op.Offset != 8192 {
		t.Errorf("a write with FUA whose sync fails: %v; want a medium error where it begins", err)
	}
	s.err = nil
	for i := range flushes {
		if err := submit(&Request{Op: OpFlush}); errors.Is(err, ErrMedium) != (i == 0) {
			t.Errorf("flush %d after it: %v", i, err)
		}
	}
	if err := v.Close(); errors.Is(err, ErrMedium) != (flushes == 0) {
		t.Errorf("Close after %d flushes: %v", flushes, err)
	}
}
