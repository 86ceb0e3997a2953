package listen

import (
	"errors"
	"io/fs"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// needIPv6 skips where there is no IPv6.
func needIPv6(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip(err)
	}
	_ = l.Close()
}

// TestFamily: a listener on every address of one family is not reached through the other.
func TestFamily(t *testing.T) {
	for _, c := range []struct{ wildcard, reached, other string }{
		{"0.0.0.0:0", "127.0.0.1", "::1"},
		{"[::]:0", "::1", "127.0.0.1"},
		{":0", "127.0.0.1", ""},
		{":0", "::1", ""},
		{"127.0.0.1:0", "127.0.0.1", "::1"},
		{"[::1]:0", "::1", "127.0.0.1"},
		{"[::ffff:127.0.0.1]:0", "127.0.0.1", "::1"},
	} {
		t.Run(c.wildcard, func(t *testing.T) {
			if c.reached == "::1" {
				needIPv6(t)
			}
			l, err := TCP(c.wildcard)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
			if err := dial(c.reached, port); err != nil {
				t.Errorf("%s is not reached: %v", c.reached, err)
			}
			if c.other != "" && dial(c.other, port) == nil {
				// Another program may have that port there.
				if _ = l.Close(); dial(c.other, port) != nil {
					t.Errorf("%s is reached", c.other)
				}
			}
		})
	}
}

// TestBothFamilies: one program may listen on every address of both families, on the same port.
func TestBothFamilies(t *testing.T) {
	needIPv6(t)
	both := func() error {
		four, err := TCP("0.0.0.0:0")
		if err != nil {
			return err
		}
		defer four.Close()
		six, err := TCP("[::]:" + strconv.Itoa(four.Addr().(*net.TCPAddr).Port))
		if err == nil {
			_ = six.Close()
		}
		return err
	}
	var err error
	if !soon.Until(func() bool { err = both(); return err == nil }) { // another program may have a port in one of them
		t.Fatal(err)
	}
}

// TestPlainTCP: the socket is TCP's, and not Multipath TCP's.
func TestPlainTCP(t *testing.T) {
	l, err := TCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var protocol int
	var optErr error
	if err := raw.Control(func(fd uintptr) {
		protocol, optErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL)
	}); err != nil || optErr != nil {
		t.Fatal(err, optErr)
	}
	if protocol != unix.IPPROTO_TCP {
		t.Errorf("protocol %d, want %d", protocol, unix.IPPROTO_TCP)
	}
}

// TestUnwatched: when the system refuses to watch another socket, to listen or to connect fails with an error that is
// told from one of a full disk.
func TestUnwatched(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	there, err := TCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	sandbox.Refuse(t, unix.SYS_EPOLL_CTL, unix.ENOSPC)
	_, listening := TCP("127.0.0.1:0")
	connecting := dial("127.0.0.1", strconv.Itoa(there.Addr().(*net.TCPAddr).Port))
	for _, err := range []error{listening, connecting} {
		if !Unwatched(err) || !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%v: not told", err)
		}
	}
	full := &net.OpError{Op: "listen", Net: "unix", Err: os.NewSyscallError("bind", unix.ENOSPC)}
	for _, err := range []error{full, &fs.PathError{Op: "write", Err: unix.ENOSPC}, unix.ENOSPC, net.ErrClosed, nil} {
		if Unwatched(err) {
			t.Errorf("%v: taken for it", err)
		}
	}
}

func dial(host, port string) error {
	c, err := new(net.Dialer).Dial("tcp", net.JoinHostPort(host, port))
	if err == nil {
		_ = c.Close()
	}
	return err
}

// failing is a listener whose Accept fails with each of the errors, or succeeds for nil, and at the end waits for
// Close.
type failing struct {
	net.Listener
	errs   chan error
	closed chan struct{}
}

func failingWith(errs ...error) failing {
	f := failing{errs: make(chan error, len(errs)), closed: make(chan struct{})}
	for _, err := range errs {
		f.errs <- err
	}
	return f
}

func (f failing) Accept() (net.Conn, error) {
	select {
	case <-f.closed:
		return nil, &net.OpError{Op: "accept", Err: net.ErrClosed}
	case err := <-f.errs:
		if err != nil {
			return nil, &net.OpError{Op: "accept", Err: err}
		}
		return new(net.TCPConn), nil
	}
}

func (f failing) Close() error { close(f.closed); return nil }

// logged returns what is logged until the test ends.
func logged(t *testing.T) *strings.Builder {
	t.Helper()
	var b strings.Builder
	before := log.Writer()
	log.SetOutput(&b)
	t.Cleanup(func() { log.SetOutput(before) })
	return &b
}

// TestSteady: a server goes on where accepting fails for now, and ends where it fails for good.
func TestSteady(t *testing.T) {
	logged(t)
	for err, passes := range map[error]bool{
		unix.EMFILE: true, unix.ENOMEM: true, unix.ECONNABORTED: true, unix.EPERM: true, unix.EHOSTUNREACH: true, unix.ENOSPC: true,
		net.ErrClosed: false, unix.EINVAL: false, unix.EBADF: false, unix.ENOTSOCK: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			c, got := Steady(failingWith(err, nil)).Accept()
			if passes && (c == nil || got != nil) || !passes && !errors.Is(got, err) {
				t.Errorf("%v: %v, %v; it is to pass: %v", err, c, got, passes)
			}
		})
	}
}

// TestSteadySaysOnce: that accepting fails is said once, however long it does, and again when it had worked in between.
func TestSteadySaysOnce(t *testing.T) {
	said := logged(t)
	synctest.Test(t, func(t *testing.T) {
		errs := slices.Repeat([]error{unix.EMFILE}, 1000)
		l := Steady(failingWith(append(append(errs, nil), unix.ENFILE, nil)...))
		for _, want := range []string{unix.EMFILE.Error(), unix.ENFILE.Error()} {
			said.Reset()
			if _, err := l.Accept(); err != nil {
				t.Error(err)
			}
			if text := said.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, want) {
				t.Errorf("it is said:\n%s", text)
			}
		}
	})
}

// TestSteadySaysWhoWaits: clients wait for what the system is short of, and for nothing that befell one of them; that
// is said as well, if it comes after the other.
func TestSteadySaysWhoWaits(t *testing.T) {
	said := logged(t)
	const waits = "; clients wait until that has passed\n"
	for err, wait := range map[error]bool{
		unix.EMFILE: true, unix.ENFILE: true, unix.ENOMEM: true, unix.ENOBUFS: true, unix.ENOSPC: true,
		unix.ECONNABORTED: false, unix.EPERM: false, unix.EPROTO: false, unix.EHOSTUNREACH: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			said.Reset()
			if _, err := Steady(failingWith(err, err, nil)).Accept(); err != nil {
				t.Error(err)
			}
			if text := said.String(); strings.Count(text, err.Error()) != 1 || strings.HasSuffix(text, waits) != wait {
				t.Errorf("%v: it is said: %s", err, text)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		said.Reset()
		if _, err := Steady(failingWith(unix.ECONNABORTED, unix.EMFILE, unix.EPERM, unix.ENFILE, nil)).Accept(); err != nil {
			t.Error(err)
		}
		lines := strings.SplitAfter(said.String(), "\n")
		if len(lines) != 3 || strings.HasSuffix(lines[0], waits) || !strings.HasSuffix(lines[1], unix.EMFILE.Error()+waits) {
			t.Errorf("of a connection, and then of a shortage, it is said: %q", lines)
		}
	})
}

// TestSteadyWaits: a server tries again soon, ever later while it goes on failing, and soon again after it had worked.
func TestSteadyWaits(t *testing.T) {
	logged(t)
	synctest.Test(t, func(t *testing.T) {
		errs := slices.Repeat([]error{unix.EMFILE}, 10)
		l := Steady(failingWith(append(append(errs, nil), unix.EMFILE, nil)...))
		for _, want := range []time.Duration{(50 + 100 + 200 + 400 + 800 + 5*1000) * time.Millisecond, 50 * time.Millisecond} {
			began := time.Now()
			if _, err := l.Accept(); err != nil || time.Since(began) != want {
				t.Errorf("%v after %v, want %v", err, time.Since(began), want)
			}
		}
	})
}

// TestSteadyCloses: Close ends an Accept that waits to try again, at once.
func TestSteadyCloses(t *testing.T) {
	logged(t)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := Steady(failingWith(unix.EMFILE))
		var closing sync.WaitGroup
		closing.Go(func() {
			synctest.Wait()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		closing.Wait()
	})
}
