package udp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/duty"
)

// errand is a task that tells what became of it.
type errand struct{ done, declined bool }

func (e *errand) Do()      { e.done = true }
func (e *errand) Decline() { e.declined = true }

// TestOffered: while a task is offered, Recv returns at once with what is there, if anything, and leaves the task to
// its caller, whether or not it polls for datagrams.
func TestOffered(t *testing.T) {
	for _, poll := range []time.Duration{NoBusyPoll, time.Second} {
		a, b := listen(t, loop4, Config{}), listen(t, loop4, Config{BusyPoll: poll})
		late := time.AfterFunc(patience, func() { b.Close() }) // which ends a Recv that waits
		who := duty.NewAttendant(func() {})
		b.Attend(who)
		rx := make([]Received, RecvBatch)
		receive := func() int {
			var e errand
			if !duty.Offer(&e) {
				t.Fatal("nobody is on duty")
			}
			n, err := b.Recv(rx)
			if err != nil {
				t.Fatal(err)
			}
			if who.Work(); !e.done {
				t.Fatalf("looking for %v, the task was declined: %v", poll, e.declined)
			}
			return n
		}
		if n := receive(); n != 0 {
			t.Errorf("%d datagrams of nobody", n)
		}
		if _, err := a.Send([]Train{trainOf(netip.AddrPortFrom(loop4, b.LocalAddr().Port()), []byte{1, 2, 3, 4}, 4)}); err != nil {
			t.Fatal(err)
		}
		for receive() == 0 {
		}
		late.Stop()
		who.Leave()
		who.Close()
	}
}
