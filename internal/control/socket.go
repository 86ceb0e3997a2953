package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultSocket is where a target that runs as a service has its socket.
const DefaultSocket = "/run/nvmetgt/control"

// socketMode lets the target's own user connect, and root.
const socketMode = 0o600

// Server serves the interface on a socket.
type Server struct {
	http http.Server
	done chan error
}

// Serve makes the socket, which only the program's own user may connect to, and serves t on it. A socket that a
// program left behind which is gone is replaced.
func Serve(path string, t Target) (*Server, error) {
	l, err := listen(path)
	if err != nil {
		return nil, err
	}
	s := &Server{http: http.Server{Handler: Handler(t), ReadTimeout: requestDue}, done: make(chan error, 1)}
	go func() { s.done <- s.http.Serve(l) }()
	return s, nil
}

func listen(path string) (net.Listener, error) {
	dialer := net.Dialer{Timeout: time.Second}
	if c, err := dialer.DialContext(context.Background(), "unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("control socket %s: another program serves it: choose another", path)
	} else if errors.Is(err, unix.ECONNREFUSED) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("control socket %s was left behind: %w", path, err)
		}
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, errors.Unwrap(err))
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), l.Close())
	}
	return l, nil
}

// Close lets requests under way end, for a moment, and removes the socket.
func (s *Server) Close() error {
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
