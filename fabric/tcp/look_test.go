package tcp

import (
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
)

// lookingReader returns a reader that may look for as long as it likes, and its peer.
func lookingReader(t *testing.T) (*reader, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = peer.Close(), c.Close() })
	r := newReader(socketOf(t, c), &recorder{}, pdu.Controller, time.Second)
	r.look.atWork = &census{began: time.Now()}
	if r.look.begin(false) == 0 {
		t.Fatal("a new connection doesn't look")
	}
	return r, peer
}

// TestMostLookers: half of the processors look, or the only one.
func TestMostLookers(t *testing.T) {
	for processors, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 64: 32} {
		if got := mostLookers(processors); got != want {
			t.Errorf("with %d processors %d look, want %d", processors, got, want)
		}
	}
}

// TestLookMakesRoom: a reader doesn't look if as many look as may, nor while more connections have
// work than may look.
func TestLookMakesRoom(t *testing.T) {
	for name, crowd := range map[string]func(*reader){
		"as many look as may": func(*reader) { lookers.Add(int32(maxLookers)) },
		"more have work": func(r *reader) {
			for range maxLookers + 1 {
				r.look.atWork.count(1)
			}
		},
	} {
		r, _ := lookingReader(t)
		before := lookers.Load()
		crowd(r)
		if _, errno := r.lookFor(time.Hour); errno != unix.EAGAIN {
			t.Errorf("%s: %v", name, errno)
		}
		if r.tally.blocked != 0 {
			t.Errorf("%s: looked %d times", name, r.tally.blocked)
		}
		lookers.Store(before)
	}
}

// TestLookEnds: a look ends when its time is over, and when the reader is asked for something else.
func TestLookEnds(t *testing.T) {
	r, _ := lookingReader(t)
	if _, errno := r.lookFor(time.Millisecond); errno != unix.EAGAIN {
		t.Error(errno)
	}
	r.interrupt()
	if _, errno := r.lookFor(time.Hour); errno != unix.EAGAIN {
		t.Error(errno)
	}
	if n := lookers.Load(); n != 0 {
		t.Errorf("%d still look", n)
	}
}

// TestDeepQueueSleeps: a reader doesn't look after a turn of as many commands as make a deep queue,
// whichever PDUs begin or end them, unless answers of disks are pending. Other PDUs don't count, and
// the count begins anew with the next turn.
func TestDeepQueueSleeps(t *testing.T) {
	turn := func(h pdu.Header, n int) (r *reader, looks bool) {
		r, _ = lookingReader(t)
		for range n {
			r.look.took(h)
		}
		return r, r.look.begin(false) > 0
	}
	for _, h := range []pdu.Header{
		{Type: pdu.TypeCapsuleCmd},
		{Type: pdu.TypeCapsuleResp},
		{Type: pdu.TypeC2HData, Flags: pdu.FlagLast | pdu.FlagSuccess},
	} {
		if _, looks := turn(h, deepTurn-1); !looks {
			t.Errorf("%v: no look after %d", h.Type, deepTurn-1)
		}
		r, looks := turn(h, deepTurn)
		if looks {
			t.Errorf("%v: a look after %d", h.Type, deepTurn)
		}
		if r.look.begin(false) == 0 {
			t.Errorf("%v: no look after an empty turn", h.Type)
		}
		r.look.turn = deepTurn
		if r.look.begin(true) == 0 {
			t.Errorf("%v: no look for what disks have to do", h.Type)
		}
	}
	for _, h := range []pdu.Header{{Type: pdu.TypeC2HData, Flags: pdu.FlagLast}, {Type: pdu.TypeH2CData}, {Type: pdu.TypeR2T}} {
		if _, looks := turn(h, 2*deepTurn); !looks {
			t.Errorf("%v counts", h.Type)
		}
	}
}

// TestOthersRunWhileLooking: if Go runs one goroutine at a time, the goroutine that has to send what a look waits for
// gets to run.
func TestOthersRunWhileLooking(t *testing.T) {
	r, peer := lookingReader(t)
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	asked := make(chan struct{})
	go func() { // doesn't send: the time that the system takes for that is no goroutine's turn
		r.interrupt()
		close(asked)
	}()
	if _, errno := r.lookFor(time.Hour); errno != unix.EAGAIN {
		t.Error(errno)
	}
	if n := r.tally.blocked; n > 100 { // in 10 ms, when the runtime interrupts a look, there are thousands
		t.Errorf("%d looks in vain before another ran", n)
	}
	<-asked
	r.resume()
	sent := make(chan error, 1)
	go func() {
		_, err := peer.Write([]byte{1})
		sent <- err
	}()
	n, errno := r.lookFor(time.Hour)
	if n != 1 || errno != 0 {
		t.Errorf("%d bytes, %v", n, errno)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// TestSleepsWithoutBusyPoll: with NoBusyPoll a reader never looks.
func TestSleepsWithoutBusyPoll(t *testing.T) {
	r, _ := lookingReader(t)
	quiet := newReader(r.conn, &recorder{}, pdu.Controller, NoBusyPoll)
	if d := quiet.look.begin(false); d != 0 {
		t.Errorf("looks for %v", d)
	}
}
