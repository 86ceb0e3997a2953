package duty

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// task says what became of it.
type task struct {
	took           time.Duration
	done, declined atomic.Int32
}

func (t *task) Do() {
	time.Sleep(t.took)
	t.done.Add(1)
}
func (t *task) Decline() { t.declined.Add(1) }

func (t *task) want(tb testing.TB, done, declined int32) {
	tb.Helper()
	if d, n := t.done.Load(), t.declined.Load(); d != done || n != declined {
		tb.Errorf("done %d times and declined %d times, want %d and %d", d, n, done, declined)
	}
}

func TestNobodyOnDuty(t *testing.T) {
	h := newHall()
	a := h.attendant(func() { t.Error("replaced") })
	if h.offer(&task{}) {
		t.Error("a task was taken before anybody arrived")
	}
	a.Arrive()
	a.Leave()
	if h.offer(&task{}) || h.offered() {
		t.Error("a task was taken after everybody had left")
	}
}

// TestWork: tasks are done in the order in which they came, one at a time.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		a := h.attendant(func() { t.Error("replaced") })
		a.Arrive()
		tasks := []*task{{took: time.Millisecond}, {}, {took: Patience - time.Millisecond}}
		for _, k := range tasks {
			if !h.offer(k) {
				t.Fatal("a task wasn't taken")
			}
		}
		for i := range tasks {
			if !h.offered() || !a.Work() {
				t.Errorf("task %d isn't offered, or took too long", i)
			}
			for j, k := range tasks {
				if j <= i {
					k.want(t, 1, 0)
				} else {
					k.want(t, 0, 0)
				}
			}
		}
		if h.offered() || !a.Work() {
			t.Error("something is left to do")
		}
		a.Leave()
	})
}

// TestLastLeaves: waiting tasks are declined when the last attendant goes off duty.
func TestLastLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		a, b := h.attendant(nil), h.attendant(nil)
		a.Arrive()
		b.Arrive()
		var k task
		h.offer(&k)
		a.Leave()
		k.want(t, 0, 0)
		b.Leave()
		k.want(t, 0, 1)
	})
}

// TestReplaced: a task that takes long doesn't delay those behind it.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		began := time.Now()
		var other atomic.Int64
		var a *Attendant
		behind := &task{}
		a = h.attendant(func() {
			go func() {
				if !a.Work() {
					t.Error("the second goroutine was replaced too")
				}
				other.Store(int64(time.Since(began)))
			}()
		})
		a.Arrive()
		slow := &task{took: time.Minute}
		h.offer(slow)
		h.offer(behind)
		if a.Work() {
			t.Error("nobody else took the place")
		}
		slow.want(t, 1, 0)
		behind.want(t, 1, 0)
		if d := time.Duration(other.Load()); d < Patience || d > 2*Patience {
			t.Errorf("the other goroutine had its turn after %v, want %v to %v", d, Patience, 2*Patience)
		}
		a.Leave()
		a.Close()
	})
}

// TestTakenAtTheLastLook: a task that is taken just when the watch found nothing to look after is looked after like any
// other.
func TestTakenAtTheLastLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		a := h.attendant(func() {})
		a.Arrive()
		h.watched.Store(true)
		if _, idle := h.round(); !idle {
			t.Fatal("there is something to look after")
		}
		h.offer(&task{took: 10 * Patience})
		go func() {
			synctest.Wait() // for the goroutine that is at the task
			h.rest()
		}()
		if a.Work() {
			t.Error("nobody took the place of who was at the task")
		}
	})
}

// TestDeclinedInTime: if those on duty don't come, tasks aren't forgotten.
func TestDeclinedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		a := h.attendant(nil)
		a.Arrive()
		var k task
		h.offer(&k)
		time.Sleep(2*Patience + time.Microsecond)
		synctest.Wait()
		k.want(t, 0, 1)
		a.Leave()
	})
}

// TestWatchEnds: the watch runs while tasks are being done, starts again with the next one, and doesn't run otherwise.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		a := h.attendant(nil)
		a.Arrive()
		for range 3 {
			for range 10 {
				h.offer(&task{took: time.Millisecond})
				if !a.Work() || !h.watched.Load() {
					t.Fatal("nobody watches")
				}
			}
			time.Sleep(3 * Patience)
			synctest.Wait()
			if h.watched.Load() {
				t.Error("the watch goes on though nothing is done")
			}
		}
		a.Leave()
	})
}

// TestOffers: of many offers by many goroutines, while attendants come and go, each is done or declined once.
func TestOffers(t *testing.T) {
	h := newHall()
	const each = 2000
	var tasks [4][each]task
	var offered, attended atomic.Int32
	stop := make(chan struct{})
	for range 3 {
		attended.Add(1)
		a := h.attendant(func() {})
		go func() {
			defer attended.Add(-1)
			for {
				a.Arrive()
				a.Work() // the goroutine that takes its place does nothing
				a.Leave()
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
	}
	done := make(chan struct{})
	for i := range tasks {
		go func() {
			for j := range tasks[i] {
				if k := &tasks[i][j]; !h.offer(k) {
					k.Decline()
				}
			}
			if offered.Add(1) == int32(len(tasks)) {
				close(done)
			}
		}()
	}
	<-done
	close(stop)
	for attended.Load() > 0 || h.watched.Load() {
		time.Sleep(time.Millisecond)
	}
	for i := range tasks {
		for j := range tasks[i] {
			if k := &tasks[i][j]; k.done.Load()+k.declined.Load() != 1 {
				t.Fatalf("task %d of %d was done %d times and declined %d times", j, i, k.done.Load(), k.declined.Load())
			}
		}
	}
}

// ring is a Ring of one answer at a time.
type ring struct{ awaited, arrived, looks, left atomic.Int32 }

func (r *ring) Awaited() bool { return r.awaited.Load() > 0 }
func (r *ring) Left()         { r.left.Add(1) }
func (r *ring) Look() bool {
	r.looks.Add(1)
	return r.arrived.Swap(0) > 0
}

// TestRings: attendants on duty look at rings with pending answers, and each ring is told when the last attendant has
// gone.
func TestRings(t *testing.T) {
	h := newHall()
	var one, two ring
	add := func(r Ring) { h.changeRings(func(l []Ring) []Ring { return append(l, r) }) }
	a, b := h.attendant(nil), h.attendant(nil)
	if a.Awaits() || a.Look() {
		t.Error("something was found where there is no ring")
	}
	add(&one)
	add(&two)
	a.Arrive()
	b.Arrive()
	if a.Awaits() || a.Look() || one.looks.Load() > 0 {
		t.Error("a ring was looked at from which nothing is to come")
	}
	two.awaited.Store(1)
	if !a.Awaits() || a.Look() || one.looks.Load() > 0 || two.looks.Load() != 1 {
		t.Error("not just the ring was looked at from which something is to come")
	}
	two.arrived.Store(1)
	if !b.Look() || b.Look() {
		t.Error("an answer wasn't found, or twice")
	}
	a.Leave()
	if two.left.Load() > 0 {
		t.Error("a ring was told that nobody looks though somebody does")
	}
	b.Leave()
	if one.left.Load() != 1 || two.left.Load() != 1 {
		t.Error("a ring wasn't told that nobody looks")
	}
}

// TestRingsUnseen: if those on duty are held up, rings are told, and nothing is left to them until they look again.
func TestRingsUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		var r ring
		h.changeRings(func(l []Ring) []Ring { return append(l, &r) })
		a := h.attendant(nil)
		if h.attended() {
			t.Error("somebody is on duty before anybody arrived")
		}
		a.Arrive()
		r.awaited.Store(1)
		for range 3 {
			if !h.attended() {
				t.Error("nobody is on duty")
			}
			for range 20 {
				a.Look()
				time.Sleep(Patience / 2)
			}
			synctest.Wait()
			if n := r.left.Load(); n > 0 {
				t.Fatalf("the ring was told %d times that nobody looks", n)
			}
			time.Sleep(3 * Patience)
			synctest.Wait()
			if r.left.Swap(0) == 0 || h.attended() {
				t.Error("who doesn't look is left to look")
			}
			a.Look()
		}
		r.awaited.Store(0)
		time.Sleep(3 * Patience)
		synctest.Wait()
		if h.watched.Load() {
			t.Error("the watch goes on though no answer is to come")
		}
		a.Leave()
	})
}
