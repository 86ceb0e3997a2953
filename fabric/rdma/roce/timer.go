package roce

import "time"

// soonest is not 0: in a bubble of testing/synctest a timer that is due is run by the goroutine that sets it, and with
// Go 1.26 the race detector crashes if two devices do so at once.
const soonest = time.Nanosecond

// now is the device's clock: the time since it was opened, at least 1.
func (d *Device) now() time.Duration { return time.Since(d.opened) + 1 }

// wakeAt makes the timer go off at at, or before. The timer is not set back when something is done earlier than
// expected: it then goes off once for nothing, and finds the next thing to wait for. So traffic costs no timer
// operations.
func (d *Device) wakeAt(at time.Duration) {
	if d.timerAt == 0 || at < d.timerAt {
		d.timerAt = at
		d.timer.Reset(max(at-d.now(), soonest))
	}
}

// kick has handlers called soon, in another goroutine.
func (d *Device) kick() {
	d.timerAt = 1
	d.timer.Reset(soonest)
}

// onTimer is the timer's function.
func (d *Device) onTimer() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.timerAt = 0
	now := d.now()
	for _, q := range d.qps.all {
		q.onTimer(now)
		if at := q.nextTimer(); at != 0 {
			d.wakeAt(at)
		}
	}
	d.turnOutside()
}
