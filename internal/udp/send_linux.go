package udp

import (
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	sendBatch = 32   // messages per sendmmsg
	sendParts = 2048 // pieces per sendmmsg; enough for at least the longest train
	// sendPatience is how long one Send waits in total for a full interface before it drops
	// datagrams. The peer's acknowledgement timers are no shorter than a few milliseconds.
	sendPatience = 10 * time.Millisecond
)

// sendControlWords is the room for control messages of one message: UDP_SEGMENT (uint16) and
// IP_TOS or IPV6_TCLASS (int), 24 bytes each.
const sendControlWords = 6

// sender is the memory that sendmmsg reads. One is enough: an RNIC sends one batch at a time.
type sender struct {
	mu      sync.Mutex
	hdrs    [sendBatch]mmsghdr
	names   [sendBatch]rawName
	control [sendBatch][sendControlWords]uint64
	iovs    [sendParts]unix.Iovec
	msgs    int
	parts   int
	waited  time.Duration
	bell    [1]Train
	_       [64]byte // keeps what the receiver reads out of this cache line
}

func (c *conn) Send(trains []Train) (int, error) {
	if !c.enter() {
		return 0, ErrClosed
	}
	defer c.leave()
	s := &c.tx
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waited = 0
	if c.near != nil {
		return s.sendNear(c, trains)
	}
	return s.send(c, trains)
}

// send hands trains to the kernel.
func (s *sender) send(c *conn, trains []Train) (int, error) {
	for done := 0; done < len(trains); {
		filled, err := s.fill(c, trains[done:])
		n, sendErr := s.flush(c, trains[done:done+filled])
		done += n
		if sendErr != nil {
			return done, sendErr
		}
		if err != nil {
			return done, err
		}
	}
	return len(trains), nil
}

// fill lays out as many trains as there is room for. An error concerns the train that follows
// those.
func (s *sender) fill(c *conn, trains []Train) (int, error) {
	s.msgs, s.parts = 0, 0
	for i := range trains {
		t := &trains[i]
		if s.msgs == sendBatch || s.parts+len(t.Parts) > sendParts && s.msgs > 0 {
			break
		}
		if err := s.add(c, t); err != nil {
			return s.msgs, err
		}
	}
	return s.msgs, nil
}

// add lays out one train.
func (s *sender) add(c *conn, t *Train) error {
	if len(t.Parts) > MaxTrainParts || t.Bytes <= 0 || t.Bytes > MaxTrainBytes {
		return trainError(t, "%d bytes in %d parts: want 1 to %d bytes in at most %d parts",
			t.Bytes, len(t.Parts), MaxTrainBytes, MaxTrainParts)
	}
	if !t.Dst.IsValid() || t.Dst.Port() == 0 {
		return trainError(t, "no destination")
	}
	if t.Dst.Addr().Unmap().Is4() != c.local.Addr().Is4() {
		return trainError(t, "the socket is bound to %v, of the other address family", c.local.Addr())
	}
	segmented := t.SegmentSize > 0 && t.SegmentSize < t.Bytes
	if segmented {
		if !c.Segments(t.Dst) {
			return &OpError{Op: "send", Addr: t.Dst, Kind: ErrSegmentation}
		}
		if t.Datagrams() > MaxTrainSegments {
			return trainError(t, "%d datagrams of %d bytes: at most %d", t.Datagrams(), t.SegmentSize, MaxTrainSegments)
		}
	}
	first, sum := s.parts, 0
	for _, p := range t.Parts {
		if len(p) == 0 {
			continue
		}
		v := &s.iovs[s.parts]
		v.Base = unsafe.SliceData(p)
		v.SetLen(len(p))
		s.parts++
		sum += len(p)
	}
	if sum != t.Bytes {
		return trainError(t, "Bytes is %d and the parts have %d", t.Bytes, sum)
	}
	s.address(c, t, segmented)
	h := &s.hdrs[s.msgs].hdr
	h.Iov = &s.iovs[first]
	h.SetIovlen(s.parts - first)
	s.msgs++
	return nil
}

// address writes the destination and the control messages of the next message.
func (s *sender) address(c *conn, t *Train, segmented bool) {
	h := &s.hdrs[s.msgs].hdr
	name := &s.names[s.msgs]
	h.Name = (*byte)(unsafe.Pointer(name))
	h.Namelen = putName(name, t.Dst, c.scopeFor(t.Dst.Addr()))

	control := &s.control[s.msgs]
	words := 0
	if segmented {
		data := putControl(control[words:], unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2)
		*(*uint16)(data) = uint16(t.SegmentSize)
		words += 3
	}
	if t.TrafficClass != c.cfg.TrafficClass {
		level, typ := int32(unix.IPPROTO_IP), int32(unix.IP_TOS)
		if !c.local.Addr().Is4() {
			level, typ = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
		}
		data := putControl(control[words:], level, typ, 4)
		*(*int32)(data) = int32(t.TrafficClass)
		words += 3
	}
	h.Control = nil
	if words > 0 {
		h.Control = (*byte)(unsafe.Pointer(control))
	}
	h.SetControllen(words * 8)
}

// putControl writes a control header and returns where its size bytes of data go.
func putControl(words []uint64, level, typ int32, size int) unsafe.Pointer {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&words[0]))
	h.Level, h.Type = level, typ
	h.SetLen(unix.SizeofCmsghdr + size)
	words[2] = 0
	return unsafe.Pointer(&words[2])
}

// scopeFor returns the interface that a link-local destination is on.
func (c *conn) scopeFor(a netip.Addr) uint32 {
	zone := a.Zone()
	if zone == "" || zone == c.local.Addr().Zone() {
		return c.scope
	}
	scope, err := scopeOf(zone)
	if err != nil {
		return c.scope
	}
	return scope
}

// flush sends what fill laid out and returns how many trains were handled, sent or dropped.
func (s *sender) flush(c *conn, trains []Train) (int, error) {
	defer s.forget()
	for done := 0; done < s.msgs; {
		// It doesn't wait and so is short: the Go scheduler needn't know about it.
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(c.fd),
			uintptr(unsafe.Pointer(&s.hdrs[done])), uintptr(s.msgs-done), unix.MSG_DONTWAIT, 0, 0)
		c.counters.TxSyscalls.Add(1)
		if errno == 0 {
			c.countSent(trains[done : done+int(n)])
			done += int(n)
			continue
		}
		if errno == unix.EINTR {
			continue
		}
		if c.isClosed() {
			return done, ErrClosed
		}
		t := &trains[done]
		switch {
		case (errno == unix.EAGAIN || errno == unix.ENOBUFS) && s.wait(c):
		case c.refusesSegments(t, errno):
			c.counters.TxRefusals.Add(1)
			return done, &OpError{Op: "send", Addr: t.Dst, Kind: ErrSegmentation, Err: errno}
		case errno == unix.EBADF || errno == unix.ENOTSOCK || errno == unix.EFAULT:
			return done, &OpError{Op: "send", Addr: t.Dst, Err: errno}
		default:
			c.countDropped(t)
			done++
		}
	}
	return s.msgs, nil
}

// forget drops the references to the caller's memory.
func (s *sender) forget() { clear(s.iovs[:s.parts]) }

// wait blocks until the socket has room and reports whether to try again.
func (s *sender) wait(c *conn) bool {
	left := sendPatience - s.waited
	if left <= 0 {
		return false
	}
	c.counters.TxWaits.Add(1)
	start := time.Now()
	fds := [1]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}
	_, _ = unix.Poll(fds[:], int(left.Milliseconds())+1)
	// The kernel's own shortage of memory (ENOBUFS) doesn't show in poll: the minimum keeps the
	// number of attempts small.
	s.waited += max(time.Since(start), sendPatience/16)
	return true
}

// refusesSegments reports whether an error means that the kernel or the route can't segment, and notes which of them:
// the route answers EIO if what is sent there is encrypted (IPsec), or by an interface without checksums before Linux
// 6.11. EINVAL may also mean that the train is too large for its path.
func (c *conn) refusesSegments(t *Train, errno unix.Errno) bool {
	if t.SegmentSize <= 0 || t.SegmentSize >= t.Bytes {
		return false
	}
	switch errno {
	case unix.EIO:
		c.refused.add(t.Dst, time.Now())
		return true
	case unix.EOPNOTSUPP, unix.ENOPROTOOPT:
	case unix.EINVAL:
		mtu, err := routeMTU(c.local.Addr(), c.scope, t.Dst)
		if err != nil || t.SegmentSize+headerBytes(t.Dst.Addr()) > mtu {
			return false
		}
	default:
		return false
	}
	c.segments.Store(false)
	return true
}

// headerBytes returns the size of the IP and UDP headers.
func headerBytes(a netip.Addr) int {
	if a.Unmap().Is4() {
		return 20 + 8
	}
	return 40 + 8
}

func (c *conn) countSent(trains []Train) {
	var datagrams, bytes uint64
	for i := range trains {
		datagrams += uint64(max(trains[i].Datagrams(), 1))
		bytes += uint64(trains[i].Bytes)
	}
	c.counters.TxDatagrams.Add(datagrams)
	c.counters.TxBytes.Add(bytes)
}

func (c *conn) countDropped(t *Train) {
	c.counters.TxDrops.Add(uint64(max(t.Datagrams(), 1)))
}
