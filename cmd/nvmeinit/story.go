package main

import (
	"fmt"
	"time"
)

// Changes of one thing of which the user is told: in the long run one in newsGap, and at once newsBurst.
const (
	newsGap   = time.Second
	newsBurst = 8
)

// story is what was told of one thing, lest one that changes all the time fill a terminal or a log. What is told last is
// always how it is now.
type story struct {
	credit  int       // changes that may be told at once
	counted time.Time // when credit was that
	last    string    // what isn't told yet; "" where nothing is
	left    int       // changes before it that weren't told
}

func newStory() *story { return &story{credit: newsBurst, counted: time.Now()} }

// tell gives what to say of a change now, or remembers it until rest, and gives "".
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

// wait is how long it is until the credit for rest is earned.
func (s *story) wait() time.Duration { return newsGap - time.Since(s.counted) }

// rest gives what isn't told yet, with a credit that has been earned meanwhile; "" where nothing is.
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
