//go:build linux

package neighbor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/ring"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

func TestMain(m *testing.M) {
	if os.Getenv(strangerEnv) != "" {
		_, err := Listen(low, func(netip.Addr) bool { return true })
		fmt.Println(err)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// strangerEnv makes this program try to listen, and report the result.
const strangerEnv = "NVMEOF_TEST_STRANGER"

// Addresses of the tests' sockets, in order; the sockets needn't exist. No concurrent run of the tests uses them.
var low, middle, high = address(1), address(2), address(3)

func address(i byte) netip.AddrPort {
	a := netip.MustParseAddr("2001:db8::").As16()
	binary.BigEndian.PutUint32(a[4:], uint32(os.Getpid()))
	a[15] = i
	return netip.AddrPortFrom(netip.AddrFrom16(a), 4791)
}

func table(t *testing.T, self netip.AddrPort) *Table {
	t.Helper()
	return tableWhere(t, self, func(netip.Addr) bool { return true })
}

// tableWhere returns a table on a host whose addresses here knows.
func tableWhere(t *testing.T, self netip.AddrPort, here func(netip.Addr) bool) *Table {
	t.Helper()
	tab, err := Listen(self, here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tab.Close() })
	return tab
}

// linked are two tables with a link between them.
func linked(t *testing.T) (a, b *Table, toB, toA *Link) {
	t.Helper()
	a, b = table(t, low), table(t, high)
	toB, toA = meet(t, a, b)
	return a, b, toB, toA
}

// meet has a table find one with a higher address.
func meet(t *testing.T, a, b *Table) (toB, toA *Link) {
	t.Helper()
	if !soon.Until(func() bool {
		toB, toA = a.Link(b.self), b.Link(a.self)
		return toB != nil && toA != nil
	}) {
		t.Fatal("no link")
	}
	return toB, toA
}

// send puts a train of one datagram.
func send(t *testing.T, l *Link, text string) {
	t.Helper()
	if !l.Put([][]byte{[]byte(text)}, len(text), len(text), 2) {
		t.Fatal("no room")
	}
}

// taken is the text of the next train.
func taken(t *testing.T, tab *Table, from netip.AddrPort) string {
	t.Helper()
	var got [1]Train
	if n := tab.Take(got[:]); n != 1 {
		t.Fatalf("%d trains are there, want one", n)
	}
	if got[0].Peer != from || got[0].Class != 2 || got[0].Segment != len(got[0].Bytes) {
		t.Fatalf("a train from %v, %d bytes a datagram, class %d", got[0].Peer, got[0].Segment, got[0].Class)
	}
	return string(got[0].Bytes)
}

// TestLink: of two tables that want to send, the one with the lower address connects, and either reads what the other
// writes.
func TestLink(t *testing.T) {
	a, b, toB, toA := linked(t)
	send(t, toB, "there")
	send(t, toB, "and")
	send(t, toA, "back")
	if got := taken(t, b, low) + taken(t, b, low); got != "thereand" {
		t.Errorf("b got %q", got)
	}
	if got := taken(t, a, high); got != "back" {
		t.Errorf("a got %q", got)
	}
	if toB.Peer() != high || toA.Peer() != low || !a.Linked() || !b.Linked() {
		t.Errorf("links to %v and %v", toB.Peer(), toA.Peer())
	}
}

// TestSeveralLinks: each peer gets what was put for it, and those that have much to say don't keep others waiting.
func TestSeveralLinks(t *testing.T) {
	a, b, c := table(t, low), table(t, middle), table(t, high)
	_, fromA := meet(t, a, b)
	aToC, fromA2 := meet(t, a, c)
	bToC, _ := meet(t, b, c)
	if a.Link(middle).Peer() != middle || a.Link(high) != aToC {
		t.Fatal("a link has taken the place of another")
	}
	send(t, fromA, "from b")
	send(t, fromA2, "from c")
	var got [2]Train
	if n := a.Take(got[:]); n != 2 || got[0].Peer == got[1].Peer {
		t.Errorf("a got %d trains, from %v and %v", n, got[0].Peer, got[1].Peer)
	}
	for range 3 {
		send(t, aToC, "more")
		send(t, bToC, "more")
	}
	var from [4]netip.AddrPort
	for i := range from {
		if n := c.Take(got[:1]); n != 1 {
			t.Fatalf("%d trains are there, want one", n)
		}
		from[i] = got[0].Peer
	}
	if from[0] == from[1] || from[2] == from[3] {
		t.Errorf("c got trains from %v", from)
	}
}

// TestLinkLasts: a neighbor's patience is for the offer and its answer; the link goes on though nothing more is said.
func TestLinkLasts(t *testing.T) {
	a, b, toB, toA := linked(t)
	time.Sleep(patience + patience/4)
	if a.Link(high) != toB || b.Link(low) != toA {
		t.Error("the link is over")
	}
}

// TestHigherWaits: the table with the higher address doesn't connect by itself.
func TestHigherWaits(t *testing.T) {
	table(t, low)
	b := table(t, high)
	b.Link(low)
	if len(b.tried) > 0 {
		t.Error("the higher address tried")
	}
}

// TestTaken: what was taken is valid until the next Take, and its room is free only then.
func TestTaken(t *testing.T) {
	_, b, toB, _ := linked(t)
	train := bytes.Repeat([]byte("x"), 64<<10-64)
	for toB.Put([][]byte{train}, len(train), 4096, 0) {
		continue
	}
	got := make([]Train, 100)
	n := b.Take(got)
	if n == 0 || toB.Put([][]byte{train}, len(train), 4096, 0) {
		t.Fatalf("room was free while %d trains were read", n)
	}
	for i := range got[:n] {
		if !bytes.Equal(got[i].Bytes, train) {
			t.Fatalf("train %d of %d has changed", i, n)
		}
	}
	if n := b.Take(got); n != 0 {
		t.Fatalf("%d trains were taken twice", n)
	}
	if !toB.Put([][]byte{train}, len(train), 4096, 0) {
		t.Error("no room though all was taken")
	}
}

// TestBell: a neighbor that takes nothing yet, or sleeps, is to be woken, once.
func TestBell(t *testing.T) {
	_, b, toB, _ := linked(t)
	if !toB.Bell() {
		t.Error("a new neighbor doesn't want to be woken")
	}
	send(t, toB, "a")
	taken(t, b, low)
	if toB.rang = time.Now().Add(-bellPause); toB.Bell() {
		t.Error("one that has just taken something wants to be woken")
	}
	for range 3 {
		if !b.Sleep() || !toB.Bell() {
			t.Error("one that sleeps doesn't want to be woken")
		}
		if toB.rang = time.Now().Add(time.Minute); toB.Bell() {
			t.Error("one that was woken wants to be woken at once")
		}
		if toB.rang = time.Now().Add(-bellPause); !toB.Bell() {
			t.Error("one that still sleeps doesn't want to be woken again")
		}
		send(t, toB, "b")
		if b.Sleep() {
			t.Error("may sleep though there is something")
		}
		b.Wake()
		if toB.Bell() {
			t.Error("one that is awake wants to be woken")
		}
		taken(t, b, low)
	}
	if err := toB.conn.SetDeadline(time.Time{}); err != nil {
		t.Errorf("the link to one that slept is over: %v", err)
	}
}

// TestEnd: when a table ends so does the link, with everything that was to be sent through it; the other one may come
// back.
func TestEnd(t *testing.T) {
	for _, ends := range []string{"the lower", "the higher"} {
		t.Run(ends, func(t *testing.T) {
			a, b, _, _ := linked(t)
			end, other, peer := a, b, low
			if ends == "the higher" {
				end, other, peer = b, a, high
			}
			for range 2 {
				if err := end.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if end.Link(other.self) != nil {
				t.Error("a closed table has a link")
			}
			if !soon.Until(func() bool { return !other.Linked() }) || other.Link(peer) != nil {
				t.Fatal("the link has outlived a neighbor")
			}
			other.mu.Lock()
			pause := other.tried[peer].pause
			other.mu.Unlock()
			if pause != 0 {
				t.Errorf("the pauses between attempts go on with %v though there was a link", pause)
			}
			again := table(t, peer)
			if !soon.Until(func() bool {
				here, there := again.Link(other.self), other.Link(peer)
				return here != nil && there != nil
			}) {
				t.Error("a neighbor that came back isn't found")
			}
		})
	}
}

// TestLastWords: what was put before a neighbor ended arrives, as what has reached a socket does; then the link is
// forgotten. The neighbor may come back at once.
func TestLastWords(t *testing.T) {
	a, b, toB, _ := linked(t)
	send(t, toB, "fare")
	send(t, toB, "well")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if !soon.Until(func() bool { return b.Link(low) == nil }) {
		t.Fatal("the link has outlived a neighbor")
	}
	if b.Sleep() {
		t.Error("may sleep though there is something")
	}
	if got := taken(t, b, low) + taken(t, b, low); got != "farewell" {
		t.Errorf("b got %q", got)
	}
	if b.Take(make([]Train, 1)); b.Linked() {
		t.Error("the link is still known when all was taken")
	}
	if answered, _, _ := offerTo(t, b, low); !answered {
		t.Error("the neighbor isn't answered when it comes back")
	}
}

// TestReadAfterEnd: what was taken stays readable when the link is over and nothing refers to its memory any more.
func TestReadAfterEnd(t *testing.T) {
	a, b, toB, _ := linked(t)
	send(t, toB, "still here")
	var got [1]Train
	if b.Take(got[:]) != 1 {
		t.Fatal("nothing there")
	}
	_ = a.Close()
	if !soon.Until(func() bool { return b.Link(low) == nil }) {
		t.Fatal("the link has outlived a neighbor")
	}
	for range 3 {
		runtime.GC()
	}
	if string(got[0].Bytes) != "still here" {
		t.Errorf("read %q", got[0].Bytes)
	}
	runtime.KeepAlive(b)
}

// mappings counts those of all links in this process.
func mappings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(maps, []byte("nvmeof rings"))
}

// TestDescriptors: a link keeps no descriptor of its memory, which would keep that allocated.
func TestDescriptors(t *testing.T) {
	linked(t)
	if !soon.Until(func() bool { return descriptors(t, "nvmeof rings") == 0 }) {
		t.Errorf("%d descriptors are left", descriptors(t, "nvmeof rings"))
	}
}

// descriptors counts those of this process that refer to a memory file of that name.
func descriptors(t *testing.T, name string) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(to, "memfd:"+name) {
			n++
		}
	}
	return n
}

// TestUnmapped: memory of links that are over is unmapped.
func TestUnmapped(t *testing.T) {
	a, b, _, _ := linked(t)
	if mappings(t) == 0 {
		t.Fatal("no memory is mapped")
	}
	_ = a.Close()
	_ = b.Close()
	a, b = nil, nil //nolint:wastedassign // lets go of the links
	if !soon.Until(func() bool { runtime.GC(); return mappings(t) == 0 }) {
		t.Errorf("%d mappings are left", mappings(t))
	}
}

// TestManyEnd: neighbors that come and go don't accumulate memory, even if nothing else triggers the garbage collector.
func TestManyEnd(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	b := table(t, high)
	for range 3 * maxLinks {
		a := table(t, low)
		toB, _ := meet(t, a, b)
		send(t, toB, "gone")
		_ = a.Close()
		if !soon.Until(func() bool { return b.Link(low) == nil }) {
			t.Fatal("the link has outlived a neighbor")
		}
		b.Take(make([]Train, 2))
		if b.Take(make([]Train, 2)); b.Linked() {
			t.Fatal("the link is still known when all was taken")
		}
	}
	if n := b.mapped.Load(); n == 0 || n > maxMapped {
		t.Errorf("b has %d mappings, want 1 to %d", n, maxMapped)
	}
}

// TestCorrupt: a neighbor that writes something invalid is no longer linked with, not even when it asks anew.
func TestCorrupt(t *testing.T) {
	b := table(t, high)
	answered, shared, conn := offerTo(t, b, low)
	if !answered || !b.Linked() {
		t.Fatal("no link")
	}
	binary.NativeEndian.PutUint64(shared, ring.Capacity+64) // how far it has written
	if b.Sleep() {
		t.Error("may sleep though there is something")
	}
	var got [1]Train
	if b.Take(got[:]) != 0 || b.Linked() || b.Link(low) != nil {
		t.Error("the link goes on")
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the neighbor isn't told: %d bytes, %v", n, err)
	}
	if answered, _, _ := offerTo(t, b, low); answered {
		t.Error("answered at once")
	}
	b.mu.Lock()
	a := b.tried[low]
	a.next = a.next.Add(-lastPause)
	b.tried[low] = a
	b.mu.Unlock()
	if answered, _, _ := offerTo(t, b, low); !answered {
		t.Error("not answered after a while")
	}
	if answered, _, _ := offerTo(t, b, low); answered {
		t.Error("linked twice")
	}
}

// offerTo offers b memory as the program at peer does, and says whether it was taken.
func offerTo(t *testing.T, b *Table, peer netip.AddrPort) (answered bool, shared []byte, conn *net.UnixConn) {
	t.Helper()
	fd, err := newMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	shared, err = unix.Mmap(fd, 0, memory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(shared) })
	conn = knock(t, b.self)
	return say(t, conn, offer+peer.String(), fd) == accepted, shared, conn
}

// knock connects to the table of an address.
func knock(t *testing.T, at netip.AddrPort) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, meetingPoint(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// say says something to a table, along with descriptors, and returns the answer.
func say(t *testing.T, conn *net.UnixConn, text string, fds ...int) (answer string) {
	t.Helper()
	if _, _, err := conn.WriteMsgUnix([]byte(text), unix.UnixRights(fds...), nil); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	var b [maxOffer]byte
	n, _ := conn.Read(b[:])
	return string(b[:n])
}

// TestRefused: an invalid offer makes no link, and does no harm.
func TestRefused(t *testing.T) {
	b := table(t, middle)
	good := memoryFile(t, memory, memory, seals)
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(make([]byte, memory)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, offer string
		fds         []int
	}{
		{"something else", "hello", []int{good}},
		{"an address alone", low.String(), []int{good}},
		{"another version", "rings 2 " + low.String(), []int{good}},
		{"no address", offer + "here", []int{good}},
		{"a higher address", offer + high.String(), []int{good}},
		{"its own address", offer + middle.String(), []int{good}},
		{"no memory", offer + low.String(), nil},
		{"two memories", offer + low.String(), []int{good, good}},
		{"memory that can shrink", offer + low.String(), []int{memoryFile(t, memory, memory, unix.F_SEAL_SEAL|unix.F_SEAL_GROW)}},
		{"memory too short", offer + low.String(), []int{memoryFile(t, memory-4096, memory, seals)}},
		{"memory that isn't there", offer + low.String(), []int{memoryFile(t, memory, 0, seals)}},
		{"a file, which can shrink", offer + low.String(), []int{int(file.Fd())}},
		{"no memory at all", offer + low.String(), []int{int(os.Stdin.Fd())}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if answer := say(t, knock(t, middle), c.offer, c.fds...); answer != "" || b.Linked() {
				t.Errorf("answered %q, linked: %t", answer, b.Linked())
			}
		})
	}
	if n := descriptors(t, "test"); n != 4 { // those that were offered
		t.Errorf("%d descriptors are open, want 4", n)
	}
	t.Run("nothing", func(t *testing.T) {
		conn := knock(t, middle)
		_ = conn.CloseWrite()
		if n, _ := conn.Read(make([]byte, 1)); n > 0 || b.Linked() {
			t.Errorf("%d bytes of answer, linked: %t", n, b.Linked())
		}
	})
}

// memoryFile returns memory of some size, with some of it allocated.
func memoryFile(t *testing.T, size, allocated int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err = unix.Ftruncate(fd, size); err == nil && allocated > 0 {
		err = unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, allocated)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

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

// TestSilent: a program that connects and says nothing neither keeps others from their link for long nor Close from
// returning.
func TestSilent(t *testing.T) {
	b := table(t, high)
	knock(t, high)
	knock(t, high)
	meet(t, table(t, low), b)
	knock(t, high)
	if !soon.Until(func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.answering != nil }) {
		t.Fatal("nobody is listened to")
	}
	w := soon.Start()
	defer w.Stop()
	if _ = b.Close(); w.Elapsed() >= patience {
		t.Errorf("Close waited for %v", w.Elapsed())
	}
}

// TestUnanswered: a peer that is there but says nothing is looked for at ever longer intervals, like one that isn't
// there. Nothing is put meanwhile that it might never take.
func TestUnanswered(t *testing.T) {
	silent, err := net.ListenUnix("unixpacket", meetingPoint(high))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	a := table(t, low)
	before := attempt{next: time.Now().Add(time.Hour), pause: lastPause}
	a.tried[high] = before
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.dial(high)
	}()
	hear(t, silent)
	if a.Link(high) != nil {
		t.Error("there is a link without an answer")
	}
	<-done
	if now := a.tried[high]; a.Linked() || now != before {
		t.Errorf("linked: %t; tried again at %v, paused for %v; want %v, %v", a.Linked(), now.next, now.pause, before.next, before.pause)
	}
}

// TestOtherAnswer: a peer that doesn't accept what it was offered, such as one of another version, is not linked with.
func TestOtherAnswer(t *testing.T) {
	other, err := net.ListenUnix("unixpacket", meetingPoint(high))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	a := table(t, low)
	go a.dial(high)
	conn := hear(t, other)
	_, _ = conn.Write([]byte("rings 2")) // fails if a's patience is over
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || a.Link(high) != nil {
		t.Errorf("the connection goes on: %d bytes, %v", n, err)
	}
}

// hear accepts a connection, and reads the offer.
func hear(t *testing.T, l *net.UnixListener) *net.UnixConn {
	t.Helper()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if n, err := conn.Read(make([]byte, maxOffer)); err != nil {
		t.Fatalf("%d bytes of an offer, %v", n, err)
	}
	return conn
}

// TestPauses: a peer that isn't there is looked for again after a second, then at ever longer intervals.
func TestPauses(t *testing.T) {
	a := table(t, low)
	now := time.Now()
	var tried []time.Duration
	for at := time.Duration(0); at < 5*time.Minute; at += time.Second / 2 {
		before := a.tried[high].next
		a.try(middle, now.Add(at)) // another one's pauses are its own
		a.try(high, now.Add(at))
		if a.tried[high].next != before {
			tried = append(tried, at)
		}
	}
	want := []int{0, 1, 3, 7, 15, 31, 63, 123, 183, 243}
	if len(tried) != len(want) {
		t.Fatalf("tried at %v", tried)
	}
	for i := range want {
		if tried[i] != time.Duration(want[i])*time.Second {
			t.Errorf("try %d was after %v, want %d s", i, tried[i], want[i])
		}
	}
}

// TestBounds: the number of links, and of other peers that are remembered, is bounded.
func TestBounds(t *testing.T) {
	b := table(t, high)
	for i := range maxLinks + 3 {
		l := &Link{peer: netip.AddrPortFrom(low.Addr(), uint16(i+1)), conn: &net.UnixConn{}}
		if err := b.add(l); (err == nil) != (i < maxLinks) {
			t.Errorf("link %d: %v", i, err)
		}
	}
	a := table(t, low)
	for i := range maxTried + 10 {
		a.try(netip.AddrPortFrom(middle.Addr(), uint16(i+1)), time.Now())
	}
	for _, l := range b.known.Load().all {
		a.known.Store(&known{byPeer: map[netip.AddrPort]*Link{l.peer: l}})
		a.lose(l, ring.ErrCorrupt)
	}
	if n := len(a.tried); n == 0 || n > maxTried {
		t.Errorf("%d are remembered, want at most %d", n, maxTried)
	}
}

// TestElsewhere: a program whose address is another host's is no neighbor, even if that address was once here, and
// stops being one when its address moves there.
func TestElsewhere(t *testing.T) {
	var moved atomic.Pointer[netip.AddrPort]
	here := func(a netip.Addr) bool { m := moved.Load(); return m == nil || a != m.Addr() }
	a, b := tableWhere(t, low, here), tableWhere(t, high, here)
	for _, peer := range []netip.AddrPort{high, low} {
		moved.Store(&peer)
		if a.dial(high); a.Linked() || b.Linked() {
			t.Errorf("linked though %v is another host's", peer)
		}
		moved.Store(nil)
		a.dial(high)
		toB, _ := meet(t, a, b)
		toB.Bell()
		moved.Store(&high)
		toB.rang = toB.rang.Add(-bellPause)
		toB.Bell() // it hasn't woken
		if !soon.Until(func() bool { return a.Link(high) == nil && b.Link(low) == nil }) {
			t.Error("the link goes on though the peer's address is another host's")
		}
	}
}

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
