// Package soon has tests wait for what comes soon, if it comes at all. It counts time in which the program
// runs: a machine that stands still for a while, however long, uses up one second.
package soon

import "time"

// seconds is far more than anything takes that ends at all.
const seconds = 60

// Receive gives what comes from ch; false where nothing does.
func Receive[T any](ch <-chan T) (v T, ok bool) {
	for range seconds {
		select {
		case v = <-ch:
			return v, true
		case <-time.After(time.Second):
		}
	}
	return v, false
}

// After is time.After but for a standstill, which uses up a hundredth of d at most.
func After(d time.Duration) <-chan struct{} {
	over := make(chan struct{})
	left := 100
	step := d / time.Duration(left)
	var next func()
	next = func() {
		if left--; left == 0 {
			close(over)
			return
		}
		time.AfterFunc(step, next)
	}
	time.AfterFunc(step, next)
	return over
}

// Until asks again and again, and reports whether the answer was yes in the end.
func Until(yes func() bool) bool {
	for range seconds * 1000 {
		if yes() {
			return true
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // who has an event to wait for calls Receive
	}
	return yes()
}
