package tcp

import (
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// addrPort returns a TCP address in the form that the rest of the program uses.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// localControl is the congestion control of connections within this host, where nothing is
// congested. Every Linux has it and lets every user choose it, and it sends whatever the peer has
// room for. The system's default may pace by timers (BBR), which cost 128 KiB reads a third of their
// throughput on loopback.
const localControl = "reno"

// setLocalControl makes fd use localControl if both its addresses are on this host. If that fails,
// the connection is only slower.
func setLocalControl(fd int, local, remote netip.AddrPort) {
	if withinHost(local.Addr(), remote.Addr()) {
		_ = unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_CONGESTION, localControl)
	}
}

// withinHost reports whether a connection stays within this host: its peer has a loopback address, or
// the connection's own local address.
func withinHost(local, remote netip.Addr) bool {
	return remote.IsLoopback() || remote.IsValid() && remote == local
}

// segment describes memory that belongs to no volume.
func segment(b []byte) blockdev.Segment { return blockdev.Segment{Bytes: b} }

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
