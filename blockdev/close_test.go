package blockdev

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// syncCounter is a storage that counts syncs, and whose syncs fail where err is set.
type syncCounter struct {
	storage
	syncs int
	err   error
}

func (s *syncCounter) sync() error {
	s.syncs++
	return s.err
}

// TestCloseSyncs: Close makes durable what was written, and says where it couldn't. A volume that is only read has
// nothing to make durable.
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
