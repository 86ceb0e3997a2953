package main

import (
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

// pathNews tells the user what becomes of paths.
type pathNews struct {
	write func(line string)

	mu    sync.Mutex
	paths map[string]*pathStory // by name
}

type pathStory struct {
	*story
	timer *time.Timer // for what isn't told yet
}

func newPathNews(write func(line string)) *pathNews {
	return &pathNews{write: write, paths: map[string]*pathStory{}}
}

// tell tells of a change, or remembers it until it may be told.
func (n *pathNews) tell(p *multipath.PathStatus) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := p.Name()
	s := n.paths[name]
	if s == nil {
		s = &pathStory{story: newStory()}
		n.paths[name] = s
	}
	waits := s.last != ""
	switch text := s.tell(pathText(p)); {
	case text != "":
		n.write(text)
	case !waits:
		s.timer = time.AfterFunc(s.wait(), func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.flush(s)
		})
	}
}

// flush tells what isn't told yet. Called with mu held.
func (n *pathNews) flush(s *pathStory) {
	if text := s.rest(); text != "" {
		n.write(text)
	}
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
