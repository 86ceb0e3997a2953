//go:build linux

package neighbor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOtherUser: memory is not shared with other users' programs, whichever side connects.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	const nobody = 65534
	b := table(t, high)
	var stranger *net.UnixConn
	as(t, nobody, func() {
		var err error
		if stranger, err = net.DialUnix("unixpacket", nil, meetingPoint(high)); err != nil {
			t.Error(err)
		}
	})
	defer stranger.Close()
	// Having refused the connection, b may have closed it already.
	_, _, _ = stranger.WriteMsgUnix([]byte(offer+low.String()), unix.UnixRights(memoryFile(t, memory, memory, seals)), nil)
	_ = stranger.SetReadDeadline(time.Now().Add(time.Minute))
	var answer [maxOffer]byte
	if n, _ := stranger.Read(answer[:]); n > 0 || b.Linked() {
		t.Errorf("somebody else got the answer %q, linked: %t", answer[:n], b.Linked())
	}
	var squatter *net.UnixListener
	as(t, nobody, func() {
		var err error
		if squatter, err = net.ListenUnix("unixpacket", meetingPoint(middle)); err != nil {
			t.Error(err)
		}
	})
	defer squatter.Close()
	a := table(t, low)
	a.dial(middle)
	conn, err := squatter.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var said [maxOffer]byte
	if n, oobn, _, _, err := conn.ReadMsgUnix(said[:], make([]byte, maxOffer)); n > 0 || oobn > 0 || a.Linked() {
		t.Errorf("offered memory to somebody else: %q, %d bytes of descriptors, %v, linked: %t", said[:n], oobn, err, a.Linked())
	}
}

// as calls do as another user, on a thread that ends with it.
func as(t *testing.T, uid int, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			t.Error(errno)
			return
		}
		do()
	}()
	<-done
}

// strangerEnv makes this program try to listen, and report the result.
const strangerEnv = "NVMEOF_TEST_STRANGER"

// TestStrangers: a program that runs as the overflow user of its user namespace shares memory with nobody. One that runs
// as another user there does.
func TestStrangers(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]string{strangers(): fmt.Sprintf("user %d: ", strangers()), 0: "<nil>"} {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), strangerEnv+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getuid(), Size: 1}},
		}
		said, err := cmd.Output()
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSPC) {
			t.Skip("no user namespaces here:", err)
		}
		if err != nil || !strings.HasPrefix(string(said), want) {
			t.Errorf("Listen as user %d said %q (%v), want what begins with %q", uid, said, err, want)
		}
	}
}

// TestNobody: where every user is known, the one of that number is a user as any other.
func TestNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	const first = "user:[4026531837]" // PROC_USER_INIT_INO of Linux
	if ns, err := os.Readlink("/proc/self/ns/user"); ns != first {
		t.Skipf("this is not the first user namespace, which knows every user: %s, %v", ns, err)
	}
	as(t, strangers(), func() {
		tab, err := Listen(low, func(netip.Addr) bool { return true })
		if err != nil {
			t.Error(err)
			return
		}
		_ = tab.Close()
	})
}

// TestInherited: children get no descriptor of a link.
func TestInherited(t *testing.T) {
	before := inherited(t)
	linked(t)
	if now := inherited(t); !slices.Equal(now, before) {
		t.Errorf("children get the descriptors %v, and %v before", now, before)
	}
}

// inherited are the descriptors that children get.
func inherited(t *testing.T) (fds []string) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		fd, _ := strconv.Atoi(e.Name())
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, e.Name())
		}
	}
	return fds
}
