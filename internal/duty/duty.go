package duty

import (
	"sync"
	"sync/atomic"
)

// Task is work to be done once. One of Do and Decline is called.
type Task interface {
	// Do does it, on a goroutine that is on duty. It may block.
	Do()
	// Decline gives it back: nobody has time for it. It must not block.
	Decline()
}

// hall is where tasks wait for those on duty. A program has one.
type hall struct {
	present atomic.Int32 // on duty
	here    atomic.Int32 // receive packets, on duty or not
	waiting atomic.Int32 // len(tasks)
	watched atomic.Bool  // the watch looks again

	mu    sync.Mutex
	tasks []Task // oldest first
	taken uint64 // how many were taken

	rings rings
	watch watch
}

func newHall() *hall {
	return &hall{watch: watch{all: map[*Attendant]struct{}{}}}
}

var std = newHall()

// Offer gives t to whoever is on duty. It returns false, and has nothing called, where nobody is.
func Offer(t Task) bool { return std.offer(t) }

// Offered tells whether tasks wait.
func Offered() bool { return std.offered() }

func (h *hall) offered() bool { return h.waiting.Load() > 0 }

func (h *hall) offer(t Task) bool {
	if h.present.Load() == 0 {
		return false
	}
	h.mu.Lock()
	h.tasks = append(h.tasks, t)
	h.waiting.Store(int32(len(h.tasks)))
	h.mu.Unlock()
	h.watchOver()
	if h.present.Load() == 0 { // the last to leave may have looked before t was there
		h.decline()
	}
	return true
}

// take takes the oldest task; nil where there is none.
func (h *hall) take() Task {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.tasks) == 0 {
		return nil
	}
	t := h.tasks[0]
	n := copy(h.tasks, h.tasks[1:])
	h.tasks[n] = nil
	h.tasks = h.tasks[:n]
	h.taken++
	h.waiting.Store(int32(n))
	return t
}

// decline declines what waits.
func (h *hall) decline() {
	for t := h.take(); t != nil; t = h.take() {
		t.Decline()
	}
}

// Attendant stands for a goroutine that receives packets, and can be replaced by another.
type Attendant struct {
	h       *hall
	replace func()
	// work is odd during a task. Who moves it on from there says whose the place is: the goroutine that has
	// done the task, or the watch, which gives it to another.
	work atomic.Uint64
	seen uint64 // work, at the watch's last look
}

// NewAttendant makes one that isn't on duty. replace starts a goroutine that goes on in its place,
// on duty, as if Work had returned true to it. It must not block.
func NewAttendant(replace func()) *Attendant { return std.attendant(replace) }

func (h *hall) attendant(replace func()) *Attendant {
	a := &Attendant{h: h, replace: replace}
	h.here.Add(1)
	h.watch.mu.Lock()
	h.watch.all[a] = struct{}{}
	h.watch.mu.Unlock()
	return a
}

// Close forgets the attendant, which is off duty and isn't used any more.
func (a *Attendant) Close() {
	w := &a.h.watch
	w.mu.Lock()
	delete(w.all, a)
	w.mu.Unlock()
	a.h.here.Add(-1)
}

// AddReceiver counts a goroutine that receives packets and has no attendant, until RemoveReceiver.
func AddReceiver() { std.here.Add(1) }

// RemoveReceiver undoes AddReceiver.
func RemoveReceiver() { std.here.Add(-1) }

// HasReceivers tells whether anybody in this program receives packets. If so, whoever calls for work that may block may
// be such a goroutine, or one that those wait for, though nobody is on duty.
func HasReceivers() bool { return std.here.Load() > 0 }

// Arrive says that Work will be called soon, and again and again until Leave.
func (a *Attendant) Arrive() { a.h.present.Add(1) }

// Leave ends Arrive. The last to leave declines what waits, and tells the rings.
func (a *Attendant) Leave() {
	if a.h.present.Add(-1) > 0 {
		return
	}
	if a.h.offered() {
		a.h.decline()
	}
	a.h.leaveRings()
}

// Work does the oldest task that is offered, if there is one: the caller looks for packets before it does another. It
// returns false where that took so long that another goroutine has taken the caller's place: the caller must end then,
// and touch nothing of what it had.
func (a *Attendant) Work() bool {
	if !a.h.offered() {
		return true
	}
	t := a.h.take()
	if t == nil {
		return true
	}
	at := a.work.Add(1)
	t.Do()
	return a.work.CompareAndSwap(at, at+1)
}
