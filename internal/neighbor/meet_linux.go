package neighbor

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/ring"
)

const (
	// offer is what the connecting side says, followed by its address, and accepted is the answer.
	offer    = "rings 1 "
	accepted = "accepted"

	maxOffer = 128
	patience = time.Second // with a neighbor that says nothing

	seals  = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	memory = 2 * ring.Size
)

// meetingPoint returns the name of the Unix socket at which the program with a UDP socket listens.
func meetingPoint(a netip.AddrPort) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: "@nvmeof/rnic/" + a.String()}
}

// dial shares memory with the program that has peer, if it listens.
func (t *Table) dial(peer netip.AddrPort) {
	conn, err := net.DialUnix("unixpacket", nil, meetingPoint(peer))
	if err != nil {
		return
	}
	if err := t.offer(conn, peer); err != nil {
		_ = conn.Close()
	}
}

// offer offers memory over the connection to peer, and begins the link if it is accepted.
func (t *Table) offer(conn *net.UnixConn, peer netip.AddrPort) error {
	if err := sameUser(conn); err != nil {
		return err
	}
	if !t.here(peer.Addr()) { // any more, though the owner of the name once had it
		return fmt.Errorf("%v isn't an address of this host", peer.Addr())
	}
	fd, err := newMemory()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	l, err := t.newLink(fd, conn, peer, 0)
	if err != nil {
		return err
	}
	if err := t.add(l); err != nil { // before the peer sends
		return err
	}
	if err := t.ask(conn, fd); err != nil {
		t.drop(l)
		return err
	}
	t.begin(l)
	return nil
}

// ask offers the memory of fd, and waits for the answer.
func (t *Table) ask(conn *net.UnixConn, fd int) error {
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, _, err := conn.WriteMsgUnix([]byte(offer+t.self.String()), unix.UnixRights(fd), nil); err != nil {
		return err
	}
	var answer [maxOffer]byte
	n, err := conn.Read(answer[:])
	if err == nil && string(answer[:n]) != accepted {
		err = fmt.Errorf("the answer is %q", answer[:n])
	}
	return err
}

// accept answers what neighbors offer.
func (t *Table) accept() {
	for {
		conn, err := t.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors, or no memory
			select {
			case <-t.done:
			case <-time.After(patience):
			}
			continue
		}
		if !t.listens(conn) || t.answer(conn) != nil {
			_ = conn.Close()
		}
		t.listens(nil)
	}
}

// listens records the connection that accept is reading from, so that Close can end that. It reports false after Close.
func (t *Table) listens(conn *net.UnixConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answering = conn
	return !t.isClosed()
}

// answer takes the memory that is offered over a connection, and begins the link.
func (t *Table) answer(conn *net.UnixConn) error {
	if err := sameUser(conn); err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	var b, oob [maxOffer]byte
	n, oobn, _, _, err := conn.ReadMsgUnix(b[:], oob[:])
	if err != nil {
		return err
	}
	fd, err := descriptor(oob[:oobn])
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	text, found := strings.CutPrefix(string(b[:n]), offer)
	peer, err := netip.ParseAddrPort(text)
	if !found || err != nil || peer.Compare(t.self) >= 0 {
		return fmt.Errorf("offer %q: want %q and an address below %v", b[:n], offer, t.self)
	}
	if !t.here(peer.Addr()) || t.shuns(peer) {
		return fmt.Errorf("%v isn't an address of this host, or of a faulty program", peer)
	}
	if err := checkMemory(fd); err != nil {
		return err
	}
	l, err := t.newLink(fd, conn, peer, 1)
	if err != nil {
		return err
	}
	if err := t.add(l); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(accepted)); err != nil {
		t.drop(l)
		return err
	}
	t.begin(l)
	return nil
}

// begin lets l be used until its connection ends.
func (t *Table) begin(l *Link) {
	_ = l.conn.SetDeadline(time.Time{})
	l.accepted.Store(true)
	t.running.Go(func() {
		var b [1]byte
		_, _ = l.conn.Read(b[:]) // returns when the connection ends: nothing is ever sent
		t.drop(l)
	})
}

// newLink makes a link in the memory of fd. Side 0, which offers the memory, writes to the first ring.
func (t *Table) newLink(fd int, conn *net.UnixConn, peer netip.AddrPort, side int) (*Link, error) {
	if t.mapped.Load() >= maxMapped {
		runtime.GC() // the collector doesn't count this memory, and may take its time otherwise
	}
	b, err := unix.Mmap(fd, 0, memory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	l := &Link{peer: peer, here: t.here, conn: conn}
	mapped := t.mapped // so that the cleanup doesn't refer to t, which may refer to l
	mapped.Add(1)
	runtime.AddCleanup(l, func(b []byte) {
		_ = unix.Munmap(b)
		mapped.Add(-1)
	}, b)
	rings := [2][]byte{b[:ring.Size:ring.Size], b[ring.Size:]}
	if l.out, err = ring.NewWriter(rings[side]); err != nil {
		return nil, err
	}
	if l.in, err = ring.NewReader(rings[1-side]); err != nil {
		return nil, err
	}
	l.in.Sleep() // Take doesn't know of it yet
	return l, nil
}

// newMemory allocates memory for two rings, sealed so that nobody can shrink it. All of it is allocated: a write to
// pages that the system can't provide would end the program (SIGBUS).
func newMemory() (fd int, err error) {
	fd, err = unix.MemfdCreate("nvmeof rings", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	if err = unix.Fallocate(fd, 0, 0, memory); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("memory of %d bytes: %w", memory, err)
	}
	return fd, nil
}

// checkMemory reports what is wrong with offered memory.
func checkMemory(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if there := st.Blocks * 512; err != nil || have&seals != seals || st.Size != memory || there < memory {
		return fmt.Errorf("memory of %d bytes, %d of them there, with seals %#x: want %d bytes with %#x", st.Size, there, have, memory, seals)
	}
	return nil
}

// descriptor returns the descriptor that came with a message.
func descriptor(oob []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1, err
	}
	var fds []int
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	if len(fds) != 1 {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return -1, fmt.Errorf("%d descriptors: want one", len(fds))
	}
	return fds[0], nil
}

// sameUser returns an error unless the other side of conn runs as this program's user.
func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	switch {
	case failed != nil:
		return os.NewSyscallError("getsockopt SO_PEERCRED", failed)
	case int(peer.Uid) != os.Geteuid():
		return fmt.Errorf("user %d: want %d", peer.Uid, os.Geteuid())
	}
	return nil
}

// ambiguous reports whether uid is also what the system reports for users that this program's user namespace doesn't map.
func ambiguous(uid int) bool { return uid == strangers() && !knowsAll() }

// strangers returns the overflow user ID, which the system reports for users that a user namespace doesn't map.
func strangers() int {
	const usual = 65534
	b, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return usual
	}
	uid, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil {
		return usual
	}
	return uid
}

// knowsAll says whether this program's user namespace knows every user, as the first one does (user_namespaces(7)): then
// whom the system calls a stranger is the user of that number, such as Debian's nobody.
func knowsAll() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	known := uint64(0)
	for line := range strings.Lines(string(b)) {
		var inside, outside, count uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return false
		}
		known += count
	}
	return known == math.MaxUint32 // the number left is no user's
}
