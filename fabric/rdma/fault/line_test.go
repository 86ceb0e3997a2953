package fault

import (
	"testing"
	"time"
)

// TestLineHasRoomAgain: a line holds so many bytes and no more, and what has been taken leaves its room to others.
func TestLineHasRoomAgain(t *testing.T) {
	const size = maxHeld / 8
	l, now := newLine(), time.Now()
	data := make([]byte, size)
	for range 3 {
		for i := range 9 {
			if ok := l.put(held{due: now, data: data}); ok != (i < 8) {
				t.Errorf("%d bytes more than %d: %v", size, i*size, ok)
			}
		}
		var out [16]held
		if n, err := l.take(now, out[:]); n != 8 || err != nil {
			t.Errorf("%d taken, want 8: %v", n, err)
		}
	}
}
