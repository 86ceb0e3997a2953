package socket

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// established is TCP_ESTABLISHED of Linux.
const established = 1

// cmsgSpace is room for one control message with a 4-byte integer.
const cmsgSpace = unix.SizeofCmsghdr + 8

// TCP is a connection of the kernel's. Waiting is done in Go's poller.
type TCP struct {
	*net.TCPConn
	raw syscall.RawConn
	fd  int

	// These belong to the goroutine that receives.
	readable func() bool
	poll     func(fd uintptr) bool
	in       unix.Msghdr
	control  [cmsgSpace]byte

	// These belong to the one that sends.
	writable  func() bool
	pollWrite func(fd uintptr) bool
	out       unix.Msghdr
}

var _ Conn = (*TCP)(nil)

// Of returns a TCP that uses c.
func Of(c *net.TCPConn) (*TCP, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	t := &TCP{TCPConn: c, raw: raw}
	t.poll = func(uintptr) bool { return t.readable() }
	t.pollWrite = func(uintptr) bool { return t.writable() }
	if err := raw.Control(func(fd uintptr) { t.fd = int(fd) }); err != nil {
		return nil, err
	}
	// Without TCP_INQ (before Linux 4.18) Recv doesn't know what is left.
	_ = unix.SetsockoptInt(t.fd, unix.SOL_TCP, unix.TCP_INQ, 1)
	if withinHost(t.LocalAddr().Addr(), t.RemoteAddr().Addr()) {
		// If that fails, the connection is only slower.
		_ = unix.SetsockoptString(t.fd, unix.SOL_TCP, unix.TCP_CONGESTION, localControl)
	}
	return t, nil
}

// LocalAddr implements Conn.
func (t *TCP) LocalAddr() netip.AddrPort { return addrPort(t.TCPConn.LocalAddr()) }

// RemoteAddr implements Conn.
func (t *TCP) RemoteAddr() netip.AddrPort { return addrPort(t.TCPConn.RemoteAddr()) }

// addrPort returns an address of TCP, which is invalid if the connection had already ended.
func addrPort(a net.Addr) netip.AddrPort {
	t, _ := a.(*net.TCPAddr)
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// WhenReadable implements Conn.
func (t *TCP) WhenReadable(f func() bool) error {
	t.readable = f
	return t.raw.Read(t.poll)
}

// WhenWritable implements Conn.
func (t *TCP) WhenWritable(f func() bool) error {
	t.writable = f
	return t.raw.Write(t.pollWrite)
}

// Recv implements Conn.
func (t *TCP) Recv(parts []unix.Iovec, onDemand bool) (n, left int, errno unix.Errno) {
	t.in.Iov = &parts[0]
	t.in.SetIovlen(len(parts))
	t.in.Control = &t.control[0]
	t.in.SetControllen(len(t.control))
	n, errno = call(unix.SYS_RECVMSG, t.fd, &t.in, unix.MSG_DONTWAIT, onDemand)
	if errno != 0 {
		return 0, 0, errno
	}
	return n, queued(t.control[:t.in.Controllen]), 0
}

// queued returns how many bytes the kernel still holds after a receive call whose control messages are b (it counts a
// FIN as one), or -1 if the kernel doesn't say.
func queued(b []byte) int {
	if len(b) < unix.SizeofCmsghdr+4 {
		return -1
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	if h.Level != unix.SOL_TCP || h.Type != unix.TCP_CM_INQ {
		return -1
	}
	return int(int32(binary.NativeEndian.Uint32(b[unix.SizeofCmsghdr:])))
}

// Send implements Conn.
func (t *TCP) Send(parts []unix.Iovec, more, onDemand bool) (int, unix.Errno) {
	flags := unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	if more {
		flags |= unix.MSG_MORE
	}
	t.out.Iov = &parts[0]
	t.out.SetIovlen(len(parts))
	return call(unix.SYS_SENDMSG, t.fd, &t.out, flags, onDemand)
}

// call makes a recvmsg or sendmsg call with MSG_DONTWAIT. It is short, so the Go scheduler isn't told
// of it: if it were, its monitor, which looks every 20 µs, would have another thread take over from a
// goroutine that is in a call just then, which with many connections cost more than our own work.
// onDemand says that pages of the memory that msg refers to may be missing: then the call may wait for
// a disk, and the scheduler is told.
func call(number uintptr, fd int, msg *unix.Msghdr, flags int, onDemand bool) (int, unix.Errno) {
	syscall := unix.RawSyscall
	if onDemand {
		syscall = unix.Syscall
	}
	n, _, errno := syscall(number, uintptr(fd), uintptr(unsafe.Pointer(msg)), uintptr(flags))
	return int(n), errno
}

// Ended implements Conn. The socket's pending error doesn't show that reliably: the next send call returns it, and so
// clears it.
func (t *TCP) Ended() bool {
	var info [4]byte // the beginning of struct tcp_info, whose first byte is the state
	word, err := unix.GetsockoptInt(t.fd, unix.SOL_TCP, unix.TCP_INFO)
	binary.NativeEndian.PutUint32(info[:], uint32(word))
	return err == nil && info[0] != established
}

// Abort implements Conn.
func (t *TCP) Abort() error {
	_ = t.SetLinger(0)
	return t.Close()
}

// localControl is the congestion control of connections within this host, where nothing is
// congested. Every Linux has it and lets every user choose it, and it sends whatever the peer has
// room for. The system's default may pace by timers (BBR), which cost 128 KiB reads a third of their
// throughput on loopback.
const localControl = "reno"

// withinHost reports whether a connection stays within this host: its peer has a loopback address, or
// the connection's own local address.
func withinHost(local, remote netip.Addr) bool {
	return remote.IsLoopback() || remote.IsValid() && remote == local
}
