package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/listen"
)

// DefaultSocket is the socket of a target that runs as a service.
const DefaultSocket = "/run/nvmetgt/control"

// socketMode lets the target's own user connect, and root.
const socketMode = 0o600

// Server serves the interface on a socket.
type Server struct {
	http http.Server
	done chan error
	path string
	at   fs.FileInfo // of the socket
}

// Serve creates the socket, to which only the program's own user may connect, and serves t on it. A socket left behind
// by a program that has ended is replaced.
func Serve(path string, t Target) (*Server, error) {
	l, at, err := create(path)
	if err != nil {
		return nil, err
	}
	s := &Server{http: http.Server{Handler: newHandler(t), ReadTimeout: requestDue}, done: make(chan error, 1), path: path, at: at}
	go func() { s.done <- s.http.Serve(listen.Steady(l)) }()
	return s, nil
}

func create(path string) (net.Listener, fs.FileInfo, error) {
	turn, err := takeTurn(path, startPatience)
	if err != nil {
		return nil, nil, err
	}
	defer turn()
	dialer := net.Dialer{Timeout: time.Second}
	if c, err := dialer.DialContext(context.Background(), "unix", path); err == nil {
		_ = c.Close() // listening there fails, too
	} else if errors.Is(err, unix.ECONNREFUSED) && isSocket(path) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("control socket %s was left behind: %w", path, err)
		}
	}
	config := net.ListenConfig{Control: restrict}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, nil, listenFailed(path, err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // Close does it, if it is still this one
	at, _ := os.Lstat(path)                       // what isn't there needs no removal
	return l, at, nil
}

// How long other programs may take for their turns when one starts, and when one ends, which they mustn't hold up.
const (
	startPatience = 5 * time.Second
	closePatience = 500 * time.Millisecond
)

// takeTurn keeps others from creating the socket until end is called. Otherwise two programs that find a socket left
// behind would both remove it, the second one that of the first, and a socket that has its name but doesn't listen yet
// would look left behind as well. Where no lock can be had, neither can a socket, or there is nobody else.
func takeTurn(path string, patience time.Duration) (end func(), err error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for due := time.Now().Add(patience); ; <-again.C {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return func() {}, nil // to create the socket says why
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		var st unix.Stat_t
		switch {
		case err == nil && unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0: // its owner has just ended its turn
		case err == nil:
			return func() { _ = os.Remove(name); f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			_ = os.Remove(name)
			f.Close()
			return func() {}, nil
		case time.Now().After(due):
			f.Close()
			return nil, fmt.Errorf("control socket %s: another program has locked %s: choose another place", path, name)
		}
		f.Close()
	}
}

// restrict sets a socket's mode before it has a name: otherwise anyone could connect in between.
func restrict(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), socketMode) }); e != nil {
		return e
	}
	return err
}

// isSocket distinguishes a socket that was left behind from a file of the user's, which refuses connections as well.
func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// listenFailed says why the socket can't be created, and what to do about it.
func listenFailed(path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("control socket %s: %w: make its directory first, or choose another", path, unix.ENOENT)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("control socket %s: %w: the path of a socket has %d bytes at most", path, unix.ENAMETOOLONG, config.MaxSocketPath)
	case errors.Is(err, unix.EADDRINUSE) && isSocket(path): // maybe another user's, who alone may connect
		return fmt.Errorf("control socket %s: another program serves it: choose another", path)
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("control socket %s: %w: it is no socket; remove it, or choose another name", path, unix.EEXIST)
	}
	var errno unix.Errno
	if errors.As(err, &errno) { // usually from bind(2): somebody else's directory, or a file system without sockets
		err = errno
	}
	return fmt.Errorf("control socket %s: %w: choose another place", path, err)
}

// Close gives requests in progress a moment to end, and removes the socket, unless another has its name by now: then
// another program serves that, after somebody removed this one.
func (s *Server) Close() error {
	select {
	case err := <-s.done: // it ended by itself: the socket is closed, and another file may have its number
		s.done <- err
	default:
		s.remove()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	if e := <-s.done; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// remove removes the socket, which is still open, so that no other file can have its number.
func (s *Server) remove() {
	if turn, err := takeTurn(s.path, closePatience); err == nil {
		defer turn()
	}
	if at, err := os.Lstat(s.path); err == nil && os.SameFile(at, s.at) {
		_ = os.Remove(s.path)
	}
}
