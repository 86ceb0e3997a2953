package roce

import (
	"slices"
	"testing"
	"time"
)

// turnTable is a device with queue pairs of some peers, none of which does more than wait.
type turnTable struct {
	d  *Device
	qs []*qp
}

// newTurnTable makes queue pair i one of peer peers[i]. device and peer are the bytes of answers for which the device
// and each peer have room.
func newTurnTable(device, peer int, peers ...int) *turnTable {
	tab := &turnTable{d: &Device{readBudget: device}}
	paths := map[int]*path{}
	for _, i := range peers {
		if paths[i] == nil {
			paths[i] = &path{window: newWindow(peer, peer, peer), reads: newWindow(peer, peer, peer)}
		}
		q := &qp{d: tab.d, path: paths[i]}
		q.req.reads.init(8)
		tab.qs = append(tab.qs, q)
	}
	return tab
}

// read makes queue pair i ask for n bytes, and reports whether it may.
func (tab *turnTable) read(i, n int) bool {
	q := tab.qs[i]
	if !q.mayRead(n) {
		return false
	}
	q.req.reads.push(read{})
	q.readsSent(n)
	return true
}

// arrive makes n bytes for queue pair i arrive.
func (tab *turnTable) arrive(i, n int) {
	tab.qs[i].readsHere(n)
	tab.d.wakeForReads(tab.qs[i].path)
}

// ready returns the queue pairs that are ready, in order, and makes them no longer ready.
func (tab *turnTable) ready() []int {
	var is []int
	for _, q := range tab.d.ready {
		q.isReady = false
		is = append(is, slices.Index(tab.qs, q))
	}
	tab.d.ready = nil
	return is
}

func wantReady(t *testing.T, tab *turnTable, want ...int) {
	t.Helper()
	if got := tab.ready(); !slices.Equal(got, want) {
		t.Errorf("ready are %v, want %v", got, want)
	}
}

func wantRead(t *testing.T, tab *turnTable, i, n int, want bool) {
	t.Helper()
	if got := tab.read(i, n); got != want {
		t.Errorf("queue pair %d may ask for %d bytes: %v, want %v", i, n, got, want)
	}
}

// TestReadsOfOnePeer: queue pairs that wait for the room of one peer are made ready in turn, as many as have room.
func TestReadsOfOnePeer(t *testing.T) {
	tab := newTurnTable(1000, 100, 0, 0, 0, 0, 0)
	wantRead(t, tab, 0, 100, true)
	wantRead(t, tab, 1, 40, false)
	wantRead(t, tab, 2, 50, false)
	wantRead(t, tab, 3, 20, false)
	tab.arrive(0, 30)
	wantReady(t, tab)
	tab.arrive(0, 20)
	wantReady(t, tab, 1)
	tab.arrive(0, 49)
	wantReady(t, tab, 1, 2)
	wantRead(t, tab, 4, 60, false) // of 99 those of the first are kept free
	wantRead(t, tab, 1, 40, true)
	wantRead(t, tab, 3, 20, false) // of 59 those of the second are
	wantRead(t, tab, 2, 50, true)
	tab.arrive(0, 1)
	tab.arrive(1, 40)
	wantReady(t, tab, 3)
}

// TestReadsOfManyPeers: the device's room goes to one queue pair after another, and no peer has more than its share,
// which is half of it if that is the only peer of which something is asked.
func TestReadsOfManyPeers(t *testing.T) {
	tab := newTurnTable(100, 100, 0, 0, 1, 2)
	wantRead(t, tab, 0, 90, true)
	wantRead(t, tab, 2, 30, false)
	wantRead(t, tab, 3, 30, false)
	tab.arrive(0, 35)
	wantReady(t, tab, 2)
	wantRead(t, tab, 0, 10, false) // 55 are more than its half
	wantRead(t, tab, 2, 30, true)
	tab.arrive(0, 55)
	wantReady(t, tab, 0, 3)
	wantRead(t, tab, 0, 10, true)
	wantRead(t, tab, 1, 40, false) // in addition to what is kept free for the first
	wantRead(t, tab, 3, 30, true)
	tab.arrive(2, 30)
	wantReady(t, tab, 1)
	wantRead(t, tab, 1, 40, true)
}

// TestReadsLeaveDevice: a queue pair that waited for the device's room, and finds none at its peer, lets the next one
// have it, and keeps its place among those of its peer.
func TestReadsLeaveDevice(t *testing.T) {
	tab := newTurnTable(100, 70, 0, 0, 1, 2)
	wantRead(t, tab, 0, 40, true)
	wantRead(t, tab, 2, 60, true)
	wantRead(t, tab, 1, 30, false) // at the device
	wantRead(t, tab, 3, 40, false) // behind it
	tab.arrive(2, 60)
	wantReady(t, tab, 1)
	wantRead(t, tab, 1, 30, false) // 70 are more than half of the room, which another waits for
	wantReady(t, tab, 3)
	wantRead(t, tab, 0, 5, false) // another of its peer is before it
	wantRead(t, tab, 3, 40, true)
	tab.arrive(0, 40)
	wantReady(t, tab, 1, 0)
}

// TestReadsKeepPlaceAtPeer: what waits for the device's room is before those of its peer that ask later.
func TestReadsKeepPlaceAtPeer(t *testing.T) {
	tab := newTurnTable(100, 70, 0, 0, 0, 1)
	wantRead(t, tab, 0, 10, true)
	wantRead(t, tab, 3, 60, true)
	wantRead(t, tab, 1, 50, false) // at the device
	wantRead(t, tab, 2, 40, false) // of the 60 that its peer has left, those of the first are kept free
	tab.arrive(3, 60)
	wantReady(t, tab, 1)
}

// TestReadsThatEnd: a queue pair that waited and no longer asks leaves its room to those behind it.
func TestReadsThatEnd(t *testing.T) {
	for name, peers := range map[string][]int{"one peer": {0, 0, 0}, "three": {0, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			tab := newTurnTable(100, 100, peers...)
			wantRead(t, tab, 0, 40, true)
			wantRead(t, tab, 1, 80, false)
			wantRead(t, tab, 2, 40, false)
			tab.qs[1].waitNotToRead()
			wantReady(t, tab, 2)
			if p := tab.qs[1].path; p.atDevice != 0 && name == "three" {
				t.Errorf("%d wait for the device's room, want none", p.atDevice)
			}
			wantRead(t, tab, 2, 40, true)
		})
	}
}

// TestReadsAgainThatEnd: nor does one keep it that waited for the device's room alone, to ask again.
func TestReadsAgainThatEnd(t *testing.T) {
	tab := newTurnTable(100, 100, 0, 1, 2)
	wantRead(t, tab, 0, 40, true)
	if tab.qs[1].mayReadAgain(80) {
		t.Error("80 bytes are asked for again, and the device has room for 60")
	}
	wantRead(t, tab, 2, 40, false)
	tab.qs[1].waitNotToRead()
	wantReady(t, tab, 2)
}

// TestSilentLeavesReads: the answers to a queue pair that hears nothing take no room, at its peer or at the device,
// until it hears again.
func TestSilentLeavesReads(t *testing.T) {
	tab := newTurnTable(100, 100, 0, 0, 1)
	wantRead(t, tab, 0, 100, true)
	wantRead(t, tab, 1, 80, false)
	wantRead(t, tab, 2, 20, false)
	silent := tab.qs[0]
	silent.setSilent(true)
	wantReady(t, tab, 1, 2)
	wantRead(t, tab, 1, 80, true)
	wantRead(t, tab, 2, 20, true)
	if n := tab.d.readers; n != 2 {
		t.Errorf("something is asked for on %d paths, want 2", n)
	}
	silent.heard(silent.d.now())
	if n, want := tab.d.readBytes, 200; n != want {
		t.Errorf("%d bytes are asked for of the device's room, want %d", n, want)
	}
	for i, n := range []int{100, 80, 20} {
		tab.arrive(i, n)
	}
	if p := silent.path; tab.d.readBytes != 0 || tab.d.readers != 0 || p.reads.inflight != 0 {
		t.Errorf("all is here, and of %d bytes %d are asked for of the peer, on %d paths", tab.d.readBytes, p.reads.inflight, tab.d.readers)
	}
}

// TestSilentLeavesWindow is the same for the window of requests. What is given up meanwhile doesn't come back.
func TestSilentLeavesWindow(t *testing.T) {
	tab := newTurnTable(100, 100, 0, 0)
	silent, other := tab.qs[0], tab.qs[1]
	w := &silent.path.window
	silent.sent(100)
	if other.maySend(60) {
		t.Error("another sends though the window is full")
	}
	silent.setSilent(true)
	wantReady(t, tab, 1)
	if !other.maySend(60) {
		t.Error("what a silent one has out fills the window")
	}
	other.sent(60)
	silent.withdrawn(70)
	if w.inflight != 60 {
		t.Errorf("%d bytes are in the window, want the other's 60", w.inflight)
	}
	silent.heard(silent.d.now())
	if w.inflight != 90 {
		t.Errorf("%d bytes are in the window, want 60, and 30 of the one that hears again", w.inflight)
	}
	silent.arrived(30)
	other.arrived(60)
	if w.inflight != 0 || silent.req.inflight != 0 {
		t.Errorf("all has arrived, and %d bytes are in the window, of which one has %d", w.inflight, silent.req.inflight)
	}
}

// TestSilenceTellsOnce: in an outage each queue pair finds that it hears nothing, some later than others, since they
// send in the room that the others' silence makes. The windows close once, until something arrives.
func TestSilenceTellsOnce(t *testing.T) {
	const size = 1 << 20
	tab := newTurnTable(size, size, 0, 0, 0, 0)
	p := tab.qs[0].path
	p.window, p.reads = newWindow(size, minWindow, size), newWindow(size, minWindow, size)
	outage := func(from time.Duration, want int) {
		t.Helper()
		for i, q := range tab.qs {
			q.sent(1000)
			q.readsSent(1000)
			q.silence(from + time.Duration(i)*time.Second)
		}
		if p.window.size != want || p.reads.size != want {
			t.Errorf("the windows are %d and %d bytes, want %d", p.window.size, p.reads.size, want)
		}
	}
	outage(time.Minute, size/2)
	tab.qs[0].arrived(1000)
	tab.qs[0].readsHere(1000)
	outage(2*time.Minute, size/4)
}

// TestSendsHaveTurns is the same for the window of requests.
func TestSendsHaveTurns(t *testing.T) {
	tab := newTurnTable(100, 100, 0, 0, 0, 0)
	w := &tab.qs[0].path.window
	w.sent(100)
	for i, n := range []int{50, 60, 10} {
		if tab.qs[i].maySend(n) {
			t.Errorf("queue pair %d may send %d bytes", i, n)
		}
	}
	w.acked(99)
	tab.d.wakeForWindow(tab.qs[0].path)
	wantReady(t, tab, 0)
	tab.qs[0].waitNotToSend()
	wantReady(t, tab, 1, 2)
	if !tab.qs[1].maySend(60) || tab.qs[3].maySend(90) {
		t.Error("the first doesn't go, or another takes what the next is to have")
	}
	w.sent(60)
	tab.d.wakeForWindow(tab.qs[0].path)
	wantReady(t, tab, 2)
}

// TestWaitsFromWindow: what is to be sent again waits from the time when it found no room; what is new doesn't.
func TestWaitsFromWindow(t *testing.T) {
	var r requester
	r.start(5, 8)
	if r.waitsFrom(time.Second); r.waitedFrom != 0 {
		t.Error("nothing is to be sent again")
	}
	r.max, r.next = 7, 6
	if r.waitsFrom(time.Second); r.waitedFrom != 0 {
		t.Error("something is out, which an answer may come to")
	}
	r.next = r.una
	if r.waitsFrom(time.Second); r.waitedFrom != time.Second {
		t.Errorf("it waits from %v, want 1s", r.waitedFrom)
	}
	if r.waitsFrom(2 * time.Second); r.waitedFrom != time.Second {
		t.Errorf("it waits from %v, want 1s", r.waitedFrom)
	}
}

// TestReadAgain: what is asked for again takes the room that it finds, whoever else waits, and otherwise waits for it: at
// its peer or at the device. If nothing is out it needs no room.
func TestReadAgain(t *testing.T) {
	tab := newTurnTable(100, 70, 0, 0, 1)
	again := func(i, n int, want bool) {
		t.Helper()
		if got := tab.qs[i].mayReadAgain(n); got != want {
			t.Errorf("queue pair %d may ask for %d bytes again: %v, want %v", i, n, got, want)
		}
	}
	again(0, 200, true)
	wantRead(t, tab, 0, 60, true)
	again(1, 10, true)
	again(1, 20, false)
	tab.arrive(0, 20)
	wantReady(t, tab, 1)
	again(1, 20, true)
	again(2, 70, false) // at the device
	again(2, 70, false)
	tab.arrive(0, 5)
	wantReady(t, tab)
	tab.arrive(0, 5)
	wantReady(t, tab, 1, 2)
	again(2, 70, true)
	tab.qs[1].waitNotToRead()
	tab.qs[2].waitNotToRead()
	if n := tab.qs[2].path.atDevice; n != 0 {
		t.Errorf("%d wait at the device", n)
	}
}

// TestFirstOfEmpty: in an empty window there is room for one, however large it is, but not for the next one too.
func TestFirstOfEmpty(t *testing.T) {
	tab := newTurnTable(1000, 100, 0, 0, 0)
	wantRead(t, tab, 0, 100, true)
	wantRead(t, tab, 1, 150, false)
	wantRead(t, tab, 2, 150, false)
	tab.arrive(0, 100)
	wantReady(t, tab, 1)
	wantRead(t, tab, 1, 150, true)
	q := tab.qs[0]
	if !q.maySendAgain(150) {
		t.Error("a packet that is larger than the window can't be sent again")
	}
	q.sent(1)
	if q.maySendAgain(100) || !q.maySendAgain(99) {
		t.Error("a packet is sent again if it finds no room, or isn't though it does")
	}
}
