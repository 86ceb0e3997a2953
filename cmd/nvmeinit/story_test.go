package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestStory: of a flood of changes the first ones are reported at once, and then the latest one each second; after
// a while without changes, all are reported again.
func TestStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStory()
		tell := func(n int) (told int) {
			for i := range n {
				if s.tell(fmt.Sprint("change ", i)) != "" {
					told++
				}
			}
			return told
		}
		if told := tell(1000); told != newsBurst {
			t.Errorf("%d told at once, want %d", told, newsBurst)
		}
		if s.wait() != newsGap {
			t.Errorf("the rest waits for %v, want %v", s.wait(), newsGap)
		}
		time.Sleep(newsGap)
		if got, want := s.rest(), fmt.Sprintf("change 999 (changes left out before it: %d)", 1000-newsBurst-1); got != want {
			t.Errorf("after a second it is %q, want %q", got, want)
		}
		if told := tell(1); told != 0 {
			t.Error("one more is told in the same second")
		}
		time.Sleep(newsGap)
		if got := s.rest(); got != "change 0" || s.rest() != "" {
			t.Errorf("after another second it is %q", got)
		}
		time.Sleep(3 * newsGap)
		if told := tell(4); told != 3 {
			t.Errorf("%d told after three seconds of silence, want 3", told)
		}
		time.Sleep(newsGap)
		s.rest()
		time.Sleep(time.Hour)
		if told := tell(1000); told != newsBurst {
			t.Errorf("%d told at once after an hour of silence, want %d", told, newsBurst)
		}
	})
}
