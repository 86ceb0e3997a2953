package listen

import (
	"errors"
	"net"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

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

func dial(host, port string) error {
	c, err := new(net.Dialer).Dial("tcp", net.JoinHostPort(host, port))
	if err == nil {
		_ = c.Close()
	}
	return err
}

// failing is a listener whose Accept fails.
type failing struct {
	net.Listener
	err error
}

func (f failing) Accept() (net.Conn, error) { return nil, f.err }

// TestSteady: a server tries again where accepting fails for now, and ends where it fails for good.
func TestSteady(t *testing.T) {
	for err, passes := range map[error]bool{
		unix.EMFILE: true, unix.ENOMEM: true, unix.ECONNABORTED: true, unix.EPERM: true, unix.EHOSTUNREACH: true,
		net.ErrClosed: false, unix.EINVAL: false, unix.EBADF: false, unix.ENOTSOCK: false,
	} {
		_, got := Steady(failing{err: &net.OpError{Op: "accept", Err: err}}).Accept()
		var passing interface{ Temporary() bool } // as net/http asks
		if !errors.Is(got, err) || (errors.As(got, &passing) && passing.Temporary()) != passes {
			t.Errorf("%v: it is %v, which is to pass: %v", err, got, passes)
		}
	}
}
