package tcp

import (
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// addrPort is a TCP address in the form that the rest of the program uses.
func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// localControl is the congestion control of connections within this host, where nothing is
// congested. Every Linux has it and allows it to everybody, and it sends what the peer has room
// for. What the system uses otherwise may pace by timers (BBR), which cost 128 KiB reads a third of
// their throughput on loopback.
const localControl = "reno"

// setLocalControl has fd use localControl where both its addresses are on this host. Where that
// can't be, only time is lost.
func setLocalControl(fd int, local, remote netip.AddrPort) {
	if withinHost(local.Addr(), remote.Addr()) {
		_ = unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_CONGESTION, localControl)
	}
}

// withinHost says that a connection doesn't leave this host: its peer has a loopback address, or the
// one that it has itself.
func withinHost(local, remote netip.Addr) bool {
	return remote.IsLoopback() || remote.IsValid() && remote == local
}

// segment describes memory that belongs to no volume.
func segment(b []byte) blockdev.Segment { return blockdev.Segment{Bytes: b} }

// call is recvmsg or sendmsg with MSG_DONTWAIT. It is short, so the Go scheduler isn't told: where
// it is, its monitor looks every 20 µs, and has another thread take the place of a goroutine that is
// in a call just then, which with many connections cost more than our own work. onDemand says
// that pages of what msg refers to may be missing: then the call may wait for a disk.
func call(number uintptr, fd int, msg *unix.Msghdr, flags int, onDemand bool) (int, unix.Errno) {
	syscall := unix.RawSyscall
	if onDemand {
		syscall = unix.Syscall
	}
	n, _, errno := syscall(number, uintptr(fd), uintptr(unsafe.Pointer(msg)), uintptr(flags))
	return int(n), errno
}
