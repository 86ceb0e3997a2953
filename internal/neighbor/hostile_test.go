//go:build linux

package neighbor

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/ring"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

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

// hear accepts a connection, and reads the offer: what it says, and where, is the same in every version with rings of
// this layout.
func hear(t *testing.T, l *net.UnixListener) *net.UnixConn {
	t.Helper()
	if got, want := l.Addr().String(), "@nvmeof/rnic/"+high.String(); got != want {
		t.Errorf("met at %s, want %s", got, want)
	}
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var b [maxOffer]byte
	if n, err := conn.Read(b[:]); err != nil || string(b[:n]) != "rings 1 "+low.String() {
		t.Fatalf("an offer %q, %v", b[:n], err)
	}
	return conn
}
