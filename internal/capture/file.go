package capture

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// File is a capture being written.
type File struct {
	name  string
	out   io.WriteCloser
	queue *queue
	start time.Time
	done  chan struct{} // closed when everything is written
	err   error         // valid when done is closed
}

// Create makes a capture file, or uses a named pipe, which Wireshark can watch live, now or later: until it does,
// records are queued. application is stored in the file as the program that made it. An existing regular file is not
// overwritten: the error is then fs.ErrExist.
func Create(path, application string) (*File, error) {
	out, err := create(path)
	if err != nil {
		return nil, err
	}
	f, err := New(out, path, application)
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

// New captures to out, which the File closes. name is used in errors.
func New(out io.WriteCloser, name, application string) (*File, error) {
	w, err := newWriter(out, application)
	if err != nil {
		return nil, writeError(name, err)
	}
	f := &File{name: name, out: out, queue: newQueue(), start: time.Now(), done: make(chan struct{})}
	go f.run(w)
	return f, nil
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
	if closeErr := f.out.Close(); err == nil {
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

// closeTimeout is how long Close waits for the reader of a pipe.
const closeTimeout = 5 * time.Second

// Close writes what is queued and closes the file. It returns the first write error, in which case the file ends before
// it. A second Close returns the same.
func (f *File) Close() error {
	f.queue.close()
	if p, ok := f.out.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = p.SetWriteDeadline(time.Now().Add(closeTimeout)) // regular files have none
	}
	<-f.done
	return f.err
}
