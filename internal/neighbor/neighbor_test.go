//go:build linux

package neighbor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

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
