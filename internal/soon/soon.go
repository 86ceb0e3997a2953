// Package soon lets tests wait for something that comes soon, if it comes at all. It counts only time during which the
// program runs: a standstill of the machine, however long, uses up one second.
package soon

import "time"

// seconds is far longer than anything takes that ends at all.
const seconds = 60

// Receive returns what comes from ch, or false if nothing does.
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

// After is like time.After, except that a standstill uses up a hundredth of d at most.
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

// Until calls yes again and again, and reports whether it finally returned true.
func Until(yes func() bool) bool {
	for range seconds * 1000 {
		if yes() {
			return true
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // who has an event to wait for calls Receive
	}
	return yes()
}
