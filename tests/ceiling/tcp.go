package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sizes of NVMe/TCP PDUs, in bytes.
const (
	commandPDU = 72        // CapsuleCmd
	dataPDU    = 24 + 4096 // C2HData with SUCCESS
)

// tcpLoad is a load of requests of the size of commands, answered with data PDUs of 4 KiB, on some TCP connections with
// the same number outstanding on each.
type tcpLoad struct{ conns, each int }

func (l tcpLoad) spec() string { return fmt.Sprintf("tcp %d %d", l.conns, l.each) }

func parseTCP(spec string) (l tcpLoad, ok bool) {
	n, _ := fmt.Sscanf(spec, "tcp %d %d", &l.conns, &l.each)
	return l, n == 2
}

// tcpEnd is one side: a goroutine that waits for all connections in one epoll, and answers what one receive call
// returned with one send call.
type tcpEnd struct {
	epoll    int
	files    []*os.File // which keep fds open
	fds      []int
	part     []int // bytes received of an incomplete message
	in, out  int   // sizes of messages
	received []byte
	answers  []byte
	events   [256]unix.EpollEvent
	messages int // messages received
}

func newTCPEnd(l tcpLoad, in, out int) (*tcpEnd, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &tcpEnd{epoll: epoll, in: in, out: out, received: make([]byte, l.each*in),
		answers: make([]byte, l.each*out)}, nil
}

// add takes a connection over from Go's poller.
func (e *tcpEnd) add(c *net.TCPConn) error {
	defer c.Close()
	f, err := c.File()
	if err != nil {
		return err
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(len(e.files))}
	e.files = append(e.files, f)
	e.part = append(e.part, 0)
	fd := int(f.Fd())
	e.fds = append(e.fds, fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	return unix.EpollCtl(e.epoll, unix.EPOLL_CTL_ADD, fd, &event)
}

func (e *tcpEnd) close() {
	for _, f := range e.files {
		f.Close()
	}
	unix.Close(e.epoll)
}

// turn waits and answers what arrived. It returns io.EOF when the other side has closed.
func (e *tcpEnd) turn() error {
	n, err := unix.EpollWait(e.epoll, e.events[:], int(patience.Milliseconds()))
	switch {
	case err == unix.EINTR:
		return nil
	case err != nil:
		return fmt.Errorf("epoll: %w", err)
	case n == 0:
		return fmt.Errorf("nothing came for %v", patience)
	}
	for i := range e.events[:n] {
		if err := e.serve(int(e.events[i].Fd)); err != nil {
			return err
		}
	}
	return nil
}

func (e *tcpEnd) serve(i int) error {
	n, errno := transfer(unix.SYS_READ, e.fds[i], e.received)
	switch {
	case errno == unix.EAGAIN:
		return nil
	case errno != 0:
		return fmt.Errorf("receive: %w", errno)
	case n == 0:
		return io.EOF
	}
	e.part[i] += n
	whole := e.part[i] / e.in
	e.part[i] %= e.in
	e.messages += whole
	return send(e.fds[i], e.answers[:whole*e.out])
}

// begin sends the first requests.
func (e *tcpEnd) begin() error {
	for _, fd := range e.fds {
		if err := send(fd, e.answers); err != nil {
			return err
		}
	}
	return nil
}

// send waits if the socket is full.
func send(fd int, b []byte) error {
	for len(b) > 0 {
		n, errno := transfer(unix.SYS_WRITE, fd, b)
		switch errno {
		case 0:
			b = b[n:]
		case unix.EAGAIN:
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1); err != nil && err != unix.EINTR {
				return fmt.Errorf("send: %w", err)
			}
		default:
			return fmt.Errorf("send: %w", errno)
		}
	}
	return nil
}

// transfer is read or write without telling Go's scheduler: it doesn't wait.
func transfer(number uintptr, fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(number, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

// answerTCP is the other process.
func answerTCP(l tcpLoad) error {
	e, err := newTCPEnd(l, commandPDU, dataPDU)
	if err != nil {
		return err
	}
	defer e.close()
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(loopback()))
	if err != nil {
		return err
	}
	defer listener.Close()
	fmt.Println(listener.Addr())
	for range l.conns {
		c, err := listener.AcceptTCP()
		if err != nil {
			return err
		}
		if err := e.add(c); err != nil {
			return err
		}
	}
	for err == nil {
		err = e.turn()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}

// measureTCP runs a load against another process.
func measureTCP(l tcpLoad, duration time.Duration) (Result, error) {
	e, err := newTCPEnd(l, dataPDU, commandPDU)
	if err != nil {
		return Result{}, err
	}
	peer, stop, err := startAnswerer(l.spec())
	if err != nil {
		return Result{}, err
	}
	for range l.conns {
		var c *net.TCPConn
		if c, err = net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(peer)); err == nil {
			err = e.add(c)
		}
		if err != nil {
			break
		}
	}
	before, start := cpu(syscall.RUSAGE_SELF)+cpu(syscall.RUSAGE_CHILDREN), time.Now()
	if err == nil {
		err = e.begin()
	}
	for err == nil && (e.messages == 0 || time.Since(start) < duration) {
		err = e.turn()
	}
	took := time.Since(start)
	e.close()
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return Result{}, err
	}
	spent := cpu(syscall.RUSAGE_SELF) + cpu(syscall.RUSAGE_CHILDREN) - before
	n := float64(e.messages)
	return Result{Answer: fmt.Sprintf("4 KiB + 24 B, %d × TCP", l.conns), Depth: l.conns * l.each,
		PerSecond: n / took.Seconds(), MBPerSecond: n * 4096 / 1e6 / took.Seconds(), CPUMicros: float64(spent.Microseconds()) / n}, nil
}
