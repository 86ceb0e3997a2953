package main

import (
	"fmt"
	"time"
)

// The rate at which the user is told about changes of one thing: one per newsGap in the long run, and newsBurst at
// once.
const (
	newsGap   = time.Second
	newsBurst = 8
)

// story limits what is reported about one thing, so that one that changes all the time doesn't fill a terminal or a
// log. The last report is always its current state.
type story struct {
	credit  int       // changes that may be reported at once
	counted time.Time // when credit was last updated
	last    string    // what hasn't been reported yet; "" if nothing
	left    int       // changes before last that weren't reported
}

func newStory() *story { return &story{credit: newsBurst, counted: time.Now()} }

// tell returns what to report about a change now, or remembers it until rest and returns "".
func (s *story) tell(text string) string {
	if s.last != "" {
		s.last = text
		s.left++
		return ""
	}
	if earned := int(time.Since(s.counted) / newsGap); earned > 0 {
		s.credit = min(newsBurst, s.credit+earned)
		s.counted = s.counted.Add(time.Duration(earned) * newsGap)
	}
	if s.credit > 0 {
		s.credit--
		return text
	}
	s.last = text
	return ""
}

// wait returns the time until the credit for rest is earned.
func (s *story) wait() time.Duration { return newsGap - time.Since(s.counted) }

// rest returns what hasn't been reported yet, using a credit that has been earned in the meantime; "" if nothing.
func (s *story) rest() string {
	if s.last == "" {
		return ""
	}
	text := s.last
	if s.left > 0 {
		text += fmt.Sprintf(" (changes left out before it: %d)", s.left)
	}
	s.last, s.left = "", 0
	s.counted = time.Now()
	return text
}
