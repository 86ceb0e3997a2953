package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

// Changes of one path of which the user is told: in the long run one in newsGap, and at once newsBurst.
const (
	newsGap   = time.Second
	newsBurst = 8
)

// pathNews tells the user what becomes of paths, lest one that comes and goes all the time fill a
// terminal or a log. What is told last is always how the path is now.
type pathNews struct {
	write func(line string)

	mu    sync.Mutex
	paths map[string]*pathStory // by name
}

// pathStory is what was told of one path.
type pathStory struct {
	credit  int       // changes that may be told at once
	counted time.Time // when credit was that
	last    string    // what isn't told yet; "" where nothing is
	left    int       // changes before it that weren't told
	timer   *time.Timer
}

func newPathNews(write func(line string)) *pathNews {
	return &pathNews{write: write, paths: map[string]*pathStory{}}
}

// tell tells of a change, or remembers it until it may be told.
func (n *pathNews) tell(p *multipath.PathStatus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name, text := p.Name(), pathText(p)
	s := n.paths[name]
	if s == nil {
		s = &pathStory{credit: newsBurst, counted: time.Now()}
		n.paths[name] = s
	}
	if s.last != "" {
		s.last = text
		s.left++
		return
	}
	if earned := int(time.Since(s.counted) / newsGap); earned > 0 {
		s.credit = min(newsBurst, s.credit+earned)
		s.counted = s.counted.Add(time.Duration(earned) * newsGap)
	}
	if s.credit > 0 {
		s.credit--
		n.write(text)
		return
	}
	s.last = text
	s.timer = time.AfterFunc(newsGap-time.Since(s.counted), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.flush(s)
	})
}

// flush tells what isn't told yet, with a credit that has been earned meanwhile. Called with mu held.
func (n *pathNews) flush(s *pathStory) {
	if s.last == "" {
		return
	}
	text := s.last
	if s.left > 0 {
		text += fmt.Sprintf(" (changes left out before it: %d)", s.left)
	}
	s.last, s.left = "", 0
	s.counted = time.Now()
	n.write(text)
}

// close tells what isn't told yet. Nothing may be told afterwards.
func (n *pathNews) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.paths {
		if s.timer != nil {
			s.timer.Stop()
		}
		n.flush(s)
	}
}
