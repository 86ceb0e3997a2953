package blockdev

import (
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// TestDsyncsWait: a flush waits for the writes that were under way when it began to wait, and for no others.
func TestDsyncsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d dsyncs
		waiting := false
		wait := func() {
			waiting = true
			go func() { d.wait(); waiting = false }()
			synctest.Wait()
		}
		end := func(turn uint32, want bool) {
			t.Helper()
			d.end(unix.RWF_DSYNC, turn)
			if synctest.Wait(); waiting != want {
				t.Errorf("it waits: %v, want %v", waiting, want)
			}
		}
		d.begin(0) // of another request
		if wait(); waiting {
			t.Fatal("it waits for nothing")
		}
		for range 3 {
			one, two := d.begin(unix.RWF_DSYNC), d.begin(unix.RWF_DSYNC)
			wait()
			three := d.begin(unix.RWF_DSYNC)
			end(two, true)
			end(one, false)
			wait()
			four := d.begin(unix.RWF_DSYNC)
			end(three, false)
			end(four, false)
		}
	})
}
