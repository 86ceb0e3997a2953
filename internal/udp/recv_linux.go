package udp

import (
	"net/netip"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/duty"
	"github.com/nvme-anywhere/nvmeof/internal/standstill"
)

// recvSize has room for the longest datagram (65,507 bytes) and for anything the kernel coalesces.
const recvSize = 64 << 10

// recvControlWords is the room for control messages of one receive: UDP_GRO (int), IP_TOS (byte) or IPV6_TCLASS (int),
// and SO_RXQ_OVFL (uint32), 24 bytes each, in words so that headers are aligned.
const recvControlWords = 12

// receiver is the memory that recvmmsg fills. It belongs to the one receiving goroutine. It is in the Go heap, not in a
// mapping of its own, so that a Received can still be read after Close.
type receiver struct {
	hdrs    [RecvBatch]mmsghdr
	iovs    [RecvBatch]unix.Iovec
	names   [RecvBatch]rawName
	control [RecvBatch][recvControlWords]uint64
	buf     []byte
	used    int    // how many headers the kernel wrote last time
	lost    uint32 // the last SO_RXQ_OVFL, a running total
}

func (r *receiver) init() {
	r.buf = make([]byte, RecvBatch*recvSize)
	for i := range r.hdrs {
		r.iovs[i].Base = &r.buf[i*recvSize]
		r.iovs[i].SetLen(recvSize)
		h := &r.hdrs[i].hdr
		h.Iov = &r.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Control = (*byte)(unsafe.Pointer(&r.control[i]))
	}
	r.used = RecvBatch
}

func (c *conn) Recv(rx []Received) (int, error) {
	if c.offered() {
		return c.TryRecv(rx)
	}
	if c.poll == 0 {
		return c.wait(rx)
	}
	began := time.Now()
	n, err := 0, error(nil)
	if limit := c.lookLimit(began); c.poller.Look(limit) {
		n, began, err = c.lookFor(rx, began, limit)
		if n == 0 && err == nil && c.offered() {
			c.waited = time.Now()
			return 0, nil
		}
		c.poller.Looked(n > 0)
	}
	if n == 0 && err == nil {
		n, err = c.wait(rx)
	}
	c.waited = time.Now()
	c.poller.Waited(c.waited.Sub(began))
	return n, err
}

// lookLimit returns how long to poll, starting at now. If the caller also polls for disk completions and some are
// pending, it is the longest time allowed.
func (c *conn) lookLimit(now time.Time) time.Duration {
	limit := c.poller.Limit(now.Sub(c.waited), c.poll)
	if c.awaitsDisks() {
		return c.poll
	}
	return limit
}

func (c *conn) awaitsDisks() bool { return c.attendant != nil && c.attendant.Awaits() }

// wait blocks for the first datagram, and takes others only if they have already arrived. It yields first, so that
// goroutines that the caller has made runnable needn't wait until Go's monitor notices that this thread sleeps in the
// kernel.
func (c *conn) wait(rx []Received) (int, error) {
	runtime.Gosched()
	standstill.Blocks()
	if c.attendant != nil {
		c.attendant.Leave()
		defer c.attendant.Arrive()
	}
	if c.near != nil {
		return c.waitNear(rx)
	}
	return c.recv(rx, unix.MSG_WAITFORONE)
}

// Attend implements Attended.
func (c *conn) Attend(a *duty.Attendant) {
	a.Arrive()
	c.attendant = a
}

// offered reports whether there are tasks for the caller of Recv to do.
func (c *conn) offered() bool { return c.attendant != nil && duty.Offered() }

func (c *conn) TryRecv(rx []Received) (int, error) {
	if c.near != nil {
		return c.tryNear(rx)
	}
	return c.recv(rx, unix.MSG_DONTWAIT)
}

// lookFor polls until something arrives, the time limit is reached, or there is a task for the caller. The time limit
// starts again when a disk has answered; lookFor returns the new start. Other goroutines run in between, except while
// disk completions are pending: waking a thread to run goroutines, of which there are mostly none, would delay the
// completion. Other programs aren't offered the processor (sched_yield): on a busy machine that costs a whole time
// slice.
func (c *conn) lookFor(rx []Received, began time.Time, limit time.Duration) (int, time.Time, error) {
	disks := c.awaitsDisks()
	for i := 0; ; i++ {
		if c.near.first(i) {
			if n := c.takeNear(rx); n > 0 {
				return n, began, nil
			}
			continue
		}
		if n, err := c.TryRecv(rx); n > 0 || err != nil {
			return n, began, err
		}
		if c.attendant != nil && c.attendant.Look() {
			began = time.Now()
		}
		if c.offered() || time.Since(began) >= limit {
			return 0, began, nil
		}
		if !disks {
			runtime.Gosched()
		}
	}
}

func (c *conn) recv(rx []Received, flags uintptr) (int, error) {
	if !c.enter() {
		return 0, ErrClosed
	}
	defer c.leave()
	want := min(len(rx), RecvBatch)
	if want == 0 {
		return 0, nil
	}
	for failed := 0; ; {
		n, errno := c.rx.call(c.fd, want, flags)
		if c.isClosed() {
			return 0, ErrClosed
		}
		switch {
		case errno == 0:
			if n = c.harvest(rx, n); n > 0 {
				return n, nil
			}
			if c.near != nil && flags&unix.MSG_DONTWAIT == 0 { // it was a bell
				return 0, nil
			}
			failed = 0
		case errno == unix.EINTR:
		case errno == unix.EAGAIN && flags&unix.MSG_DONTWAIT != 0:
			c.counters.RxEmpty.Add(1)
			return 0, nil
		case !transient(errno):
			return 0, &OpError{Op: "recv", Addr: c.local, Err: errno}
		case flags&unix.MSG_DONTWAIT != 0 && failed >= mostFailed:
			return 0, nil
		case failed >= mostFailed:
			time.Sleep(recvPause) //nolint:forbidigo // nobody is told when the system has what it is short of
		default:
			failed++
		}
	}
}

const (
	// mostFailed is how often in a row a call may fail before the next one waits: errors that concern datagrams come with
	// those, but what the system is short of it may be short of for long.
	mostFailed = 16
	recvPause  = time.Millisecond
)

// call calls recvmmsg.
func (r *receiver) call(fd, want int, flags uintptr) (int, unix.Errno) {
	for i := range r.hdrs[:r.used] {
		h := &r.hdrs[i].hdr
		h.Namelen = sizeofName6
		h.SetControllen(recvControlWords * 8)
		h.Flags = 0
	}
	r.used = 0
	syscall := unix.Syscall6
	if flags&unix.MSG_DONTWAIT != 0 {
		// It is short, so the Go scheduler needn't know about it, and its monitor sleeps on.
		syscall = unix.RawSyscall6
	}
	n, _, errno := syscall(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&r.hdrs[0])), uintptr(want), flags, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	r.used = int(n)
	return int(n), 0
}

// harvest converts what the kernel wrote to rx, except messages that were truncated.
func (c *conn) harvest(rx []Received, n int) int {
	var datagrams, bytes, truncated uint64
	filled := 0
	for i := range n {
		if c.rx.hdrs[i].hdr.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			truncated++
			continue
		}
		r := &rx[filled]
		c.parse(r, i)
		if c.near != nil && isBell(r) {
			continue
		}
		filled++
		bytes += uint64(len(r.Buf))
		datagrams += uint64(r.Count())
	}
	k := &c.counters
	k.RxSyscalls.Add(1)
	k.RxDatagrams.Add(datagrams)
	k.RxBytes.Add(bytes)
	addSome(&k.RxTruncated, truncated)
	return filled
}

func addSome(c *atomic.Uint64, n uint64) {
	if n > 0 {
		c.Add(n)
	}
}

// parse reads message i into r.
func (c *conn) parse(r *Received, i int) {
	m := &c.rx.hdrs[i]
	off := i * recvSize
	end := off + int(m.len)
	r.Buf = c.rx.buf[off:end:end]
	r.SegmentSize = len(r.Buf)
	r.Dst = c.local.Addr()
	r.TrafficClass = 0
	r.Index = 0
	r.Src = c.source(&c.rx.names[i])
	c.parseControl(r, c.rx.control[i][:m.hdr.Controllen/8])
}

// parseControl walks the control messages; each begins at a multiple of eight bytes.
func (c *conn) parseControl(r *Received, words []uint64) {
	const header = unix.SizeofCmsghdr / 8
	for len(words) > header {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&words[0]))
		data := unsafe.Pointer(&words[header])
		switch {
		case h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO:
			if size := *(*int32)(data); size > 0 {
				r.SegmentSize = int(size)
			}
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TOS:
			r.TrafficClass = *(*uint8)(data)
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_TCLASS:
			r.TrafficClass = uint8(*(*int32)(data))
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_RXQ_OVFL:
			total := *(*uint32)(data)
			addSome(&c.counters.RxKernelDrops, uint64(total-c.rx.lost))
			c.rx.lost = total
		}
		step := int(h.Len+7) / 8
		if step <= header || step > len(words) {
			return
		}
		words = words[step:]
	}
}

// source returns the address of the sender.
func (c *conn) source(n *rawName) netip.AddrPort {
	port := netPort(n.Port)
	if n.Family == unix.AF_INET {
		n4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(n))
		return netip.AddrPortFrom(netip.AddrFrom4(n4.Addr), port)
	}
	a := netip.AddrFrom16(n.Addr)
	if n.Scope_id != 0 {
		zone := c.local.Addr().Zone()
		if n.Scope_id != c.scope || zone == "" {
			zone = strconv.FormatUint(uint64(n.Scope_id), 10)
		}
		a = a.WithZone(zone)
	}
	return netip.AddrPortFrom(a, port)
}

// transient reports whether an error concerns only one datagram, often as an ICMP answer to one that we sent, or only
// this call, for lack of memory, and not the socket. An administrator can end connections (`ss -K`), which gives the
// sockets of datagrams that error once, and takes nothing from them.
func transient(errno unix.Errno) bool {
	switch errno {
	case unix.EAGAIN, unix.ECONNREFUSED, unix.ECONNRESET, unix.ECONNABORTED, unix.EHOSTUNREACH,
		unix.EHOSTDOWN, unix.ENETUNREACH, unix.ENETDOWN, unix.ENONET, unix.EMSGSIZE,
		unix.EPROTO, unix.ENOPROTOOPT, unix.EOPNOTSUPP, unix.EACCES, unix.EPERM,
		unix.ENOMEM, unix.ENOBUFS:
		return true
	}
	return false
}
