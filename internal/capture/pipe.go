package capture

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipe is a named pipe, which the first Write opens once somebody reads it. Opening it at once would wait for a reader,
// with nothing to end the wait.
type pipe struct {
	path string

	mu       sync.Mutex
	file     *os.File
	deadline time.Time // zero for none
}

// pipePause is the interval of checks for a reader.
const pipePause = 20 * time.Millisecond

var errNoReader = errors.New("nobody reads the pipe")

func (p *pipe) Write(b []byte) (int, error) {
	for {
		file, err := p.open()
		switch {
		case err == nil:
			return file.Write(b)
		case !errors.Is(err, syscall.ENXIO):
			return 0, err
		}
		time.Sleep(pipePause) //nolint:forbidigo // nobody is told when somebody begins to read a pipe
	}
}

// open returns the file, or ENXIO while nobody reads it.
func (p *pipe) open() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		return p.file, nil
	}
	file, err := os.OpenFile(p.path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	switch {
	case err == nil:
		p.file = file
		err = file.SetWriteDeadline(p.deadline)
		return file, err
	case errors.Is(err, syscall.ENXIO) && !p.deadline.IsZero() && time.Now().After(p.deadline):
		return nil, errNoReader
	}
	return nil, err
}

// SetWriteDeadline also bounds the wait for a reader.
func (p *pipe) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = t
	if p.file != nil {
		return p.file.SetWriteDeadline(t)
	}
	return nil
}

func (p *pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		return nil
	}
	return p.file.Close()
}
