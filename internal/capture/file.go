package capture

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/aio"
)

// File is a capture being written.
type File struct {
	name  string
	out   io.WriteCloser
	queue *queue
	start time.Time
	done  chan struct{} // closed when everything is written
	err   error         // valid when done is closed

	writes atomic.Int64 // that have returned
}

// Create makes a capture file, or uses a named pipe, which Wireshark can watch live, now or later: until it does,
// records are queued. application is stored in the file as the program that made it. An existing regular file is not
// overwritten: the error is then fs.ErrExist.
func Create(path, application string) (*File, error) {
	out, err := create(path)
	if err != nil {
		return nil, err
	}
	f, err := newFile(out, path, application)
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	return f, nil
}

func create(path string) (io.WriteCloser, error) {
	const mode = 0o600 // it holds what lies in volumes, as their files do
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err == nil {
		return out, nil
	}
	if info, statErr := os.Stat(path); statErr == nil && info.Mode().Type() == fs.ModeNamedPipe {
		p := &pipe{path: path}
		if _, err = p.open(); err == nil || errors.Is(err, syscall.ENXIO) {
			return p, nil
		}
	} else if statErr == nil && !info.Mode().IsRegular() && !info.IsDir() {
		out, err = os.OpenFile(path, os.O_WRONLY, 0)
	}
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, fs.ErrExist):
		return nil, fmt.Errorf("capture: %w (remove it or choose another name)", err)
	}
	return nil, fmt.Errorf("capture: %w", err)
}

// newFile captures to out, which the File closes. name is used in errors.
func newFile(out io.WriteCloser, name, application string) (*File, error) {
	f := &File{name: name, out: out, queue: newQueue(), start: time.Now(), done: make(chan struct{})}
	w, err := newWriter(counted{f}, application)
	if err != nil {
		return nil, writeError(name, err)
	}
	go f.run(w)
	return f, nil
}

// counted writes to a File's out, and counts its writes.
type counted struct{ f *File }

func (c counted) Write(b []byte) (n int, err error) {
	defer c.f.writes.Add(1)
	aio.Apart(func() { n, err = c.f.out.Write(b) }) // which may wait for a disk
	return n, err
}

// writeError names the file once: a file's system error already has the name.
func writeError(name string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return fmt.Errorf("capture: write %s: %w", name, err)
}

// run writes until Close, or until writing fails.
func (f *File) run(w *writer) {
	defer close(f.done)
	err := f.drain(w)
	f.queue.close()
	if err == nil {
		err = w.finish(f.start, f.queue.drops())
	}
	var closeErr error
	aio.Apart(func() { closeErr = f.out.Close() })
	if err == nil {
		err = closeErr
	}
	if err != nil {
		f.err = writeError(f.name, err)
	}
}

func (f *File) drain(w *writer) error {
	if err := w.flush(); err != nil {
		return err
	}
	spare := new(batch)
	for {
		full := f.queue.take(spare)
		if full == nil {
			return nil
		}
		if err := w.batch(full); err != nil {
			return err
		}
		if err := w.flush(); err != nil {
			return err
		}
		full.reset()
		spare = full
	}
}

// Dropped returns the number of datagrams and stream calls that have found no room so far.
func (f *File) Dropped() uint64 { return f.queue.drops() }

// Done is closed when nothing is written any more: after Close, or where writing failed, as Close says then.
func (f *File) Done() <-chan struct{} { return f.done }

// closeTimeout is how long Close waits for the reader of a pipe, and for each write to anything else.
const closeTimeout = 5 * time.Second

var errHangs = errors.New("the file system doesn't answer")

// Close writes what is queued and closes the file. It returns the first write error, in which case the file ends before
// it, or that the file system doesn't answer. A second Close returns the same.
func (f *File) Close() error {
	f.queue.close()
	if p, ok := f.out.(interface{ SetWriteDeadline(time.Time) error }); ok {
		if p.SetWriteDeadline(time.Now().Add(closeTimeout)) == nil { // regular files have none
			<-f.done
			return f.err
		}
	}
	for {
		before := f.writes.Load()
		select {
		case <-f.done:
			return f.err
		case <-time.After(closeTimeout):
			if f.writes.Load() == before {
				return writeError(f.name, errHangs)
			}
		}
	}
}
