package target

import (
	"maps"
	"slices"
	"sync"
)

// memStore is a Store in memory that may fail.
type memStore struct {
	mu   sync.Mutex
	kept map[string][]byte
	err  error
}

func (s *memStore) Load(name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[name], s.err
}

func (s *memStore) Delete(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		delete(s.kept, name)
	}
	return s.err
}

func (s *memStore) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.kept))
}

func (s *memStore) copy() map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.kept)
}

func (s *memStore) put(name string, data []byte) {
	s.mu.Lock()
	s.kept[name] = data
	s.mu.Unlock()
}

func (s *memStore) setErr(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
}

func (s *memStore) Save(name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.kept[name] = data
	}
	return s.err
}
