package roce

import "time"

// now is the device's clock: the time since it was opened, at least 1.
func (d *Device) now() time.Duration { return time.Since(d.opened) + 1 }

// wakeAt sees to it that the timer goes off at at, or before. It is not set back when
// something is done earlier than expected: it goes off once for nothing then, and finds the
// next thing to wait for. So traffic costs no timer operations.
func (d *Device) wakeAt(at time.Duration) {
	if d.timerAt == 0 || at < d.timerAt {
		d.timerAt = at
		d.timer.Reset(max(at-d.now(), 0))
	}
}

// kick has handlers called soon, in another goroutine.
func (d *Device) kick() {
	d.timerAt = 1
	d.timer.Reset(0)
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
		if at := q.nextTimer(); at != 0 && now >= at {
			q.onTimer(now)
		}
		if at := q.nextTimer(); at != 0 {
			d.wakeAt(at)
		}
	}
	if d.takeTurn() {
		d.finishTurn(roundsOfOthers)
		if d.backlog() {
			d.kick()
		}
	}
}
