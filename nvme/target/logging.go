package target

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// limitedLog passes on a bounded number of messages a second, lest hosts that come and go
// fill the disk, and says how many it left out.
type limitedLog struct {
	log *slog.Logger

	mu      sync.Mutex
	tokens  float64
	last    time.Time
	dropped int
}

const (
	logRate  = 10 // messages a second in the long run
	logBurst = 100
)

func (l *limitedLog) print(level slog.Level, msg string, args ...any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	dropped, ok := l.take(time.Now())
	if !ok {
		return
	}
	if dropped > 0 {
		args = append(args, "messages_left_out", dropped)
	}
	l.log.Log(context.Background(), level, msg, args...)
}

// take takes one token, and the count of messages dropped since the last one.
func (l *limitedLog) take(now time.Time) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.IsZero() {
		l.tokens = logBurst
	} else {
		l.tokens = min(logBurst, l.tokens+logRate*now.Sub(l.last).Seconds())
	}
	l.last = now
	if l.tokens < 1 {
		l.dropped++
		return 0, false
	}
	l.tokens--
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}

func (l *limitedLog) info(msg string, args ...any) { l.print(slog.LevelInfo, msg, args...) }
func (l *limitedLog) warn(msg string, args ...any) { l.print(slog.LevelWarn, msg, args...) }
