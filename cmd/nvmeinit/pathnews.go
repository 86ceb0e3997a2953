package main

import (
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

// pathNews tells the user about changes of paths.
type pathNews struct {
	write func(line string)

	mu    sync.Mutex
	paths map[string]*pathStory // by name
}

type pathStory struct {
	*story
	timer *time.Timer // for what hasn't been reported yet
}

func newPathNews(write func(line string)) *pathNews {
	return &pathNews{write: write, paths: map[string]*pathStory{}}
}

// tell reports a change, or remembers it until it may be reported.
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

// flush reports what hasn't been reported yet. Called with mu held.
func (n *pathNews) flush(s *pathStory) {
	if text := s.rest(); text != "" {
		n.write(text)
	}
}

// close reports what hasn't been reported yet. tell must not be called afterwards.
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
