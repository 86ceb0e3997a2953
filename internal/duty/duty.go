package duty

import (
	"sync"
	"sync/atomic"
)

// Task is work to be done once. Either Do or Decline is called.
type Task interface {
	// Do does the task, on a goroutine that is on duty. It may block.
	Do()
	// Decline gives the task back: nobody has time for it. It must not block.
	Decline()
}

// hall is where tasks wait for those on duty. A program has one.
type hall struct {
	present atomic.Int32 // attendants on duty
	here    atomic.Int32 // goroutines that receive packets, on duty or not
	waiting atomic.Int32 // len(tasks)
	watched atomic.Bool  // the watch will look again

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

// Offer hands t to an attendant on duty. If there is none it returns false, and calls nothing.
func Offer(t Task) bool { return std.offer(t) }

// Offered reports whether tasks are waiting.
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
	if h.present.Load() == 0 { // the last one may have left before it saw t
		h.decline()
	}
	return true
}

// take removes and returns the oldest task, or nil if there is none.
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

// decline declines all waiting tasks.
func (h *hall) decline() {
	for t := h.take(); t != nil; t = h.take() {
		t.Decline()
	}
}

// Attendant stands for a goroutine that receives packets and can be replaced by another.
type Attendant struct {
	h       *hall
	replace func()
	// work is odd during a task. Whoever increments it then decides who keeps the place: the goroutine that has done
	// the task, or the watch, which gives the place to another goroutine.
	work atomic.Uint64
	seen uint64 // work, at the watch's last look
}

// NewAttendant returns an attendant that isn't on duty. replace starts a goroutine that continues in its place, on
// duty, as if Work had returned true to it. It must not block.
func NewAttendant(replace func()) *Attendant { return std.attendant(replace) }

func (h *hall) attendant(replace func()) *Attendant {
	a := &Attendant{h: h, replace: replace}
	h.here.Add(1)
	h.watch.mu.Lock()
	h.watch.all[a] = struct{}{}
	h.watch.mu.Unlock()
	return a
}

// Close removes the attendant, which must be off duty and not be used afterwards.
func (a *Attendant) Close() {
	w := &a.h.watch
	w.mu.Lock()
	delete(w.all, a)
	w.mu.Unlock()
	a.h.here.Add(-1)
}

// AddReceiver counts a goroutine that receives packets without an attendant, until RemoveReceiver.
func AddReceiver() { std.here.Add(1) }

// RemoveReceiver undoes AddReceiver.
func RemoveReceiver() { std.here.Add(-1) }

// HasReceivers reports whether anything in this program receives packets. If so, the caller of an operation that may
// block could be such a goroutine, or one that such a goroutine waits for, even if nobody is on duty.
func HasReceivers() bool { return std.here.Load() > 0 }

// Arrive puts a on duty: Work will be called soon, and again and again until Leave.
func (a *Attendant) Arrive() { a.h.present.Add(1) }

// Leave takes a off duty. The last one to leave declines all waiting tasks, and tells the rings.
func (a *Attendant) Leave() {
	if a.h.present.Add(-1) > 0 {
		return
	}
	if a.h.offered() {
		a.h.decline()
	}
	a.h.leaveRings()
}

// Work does the oldest task that is offered, if there is one; the caller looks for packets before it does another. It
// returns false if the task took so long that another goroutine has taken the caller's place: then the caller must end,
// and touch nothing it owned.
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
