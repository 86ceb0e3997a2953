package inuse

import (
	"testing"
	"testing/synctest"
)

func TestCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Count
		if c.Closed() || !c.Begin() || !c.Begin() {
			t.Fatal("closed from the start")
		}
		ended := false
		go func() {
			c.Close()
			ended = true
		}()
		synctest.Wait()
		if !c.Closed() || c.Begin() {
			t.Error("it counts after Close")
		}
		c.End()
		synctest.Wait()
		if ended {
			t.Error("Close didn't wait for the second")
		}
		c.End()
		synctest.Wait()
		if !ended {
			t.Error("Close waits though all have ended")
		}
	})
}
