// Package limitlog limits the rate of a log, so that peers that come and go, or violate the
// protocol, can't fill the disk.
package limitlog

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Rate is how many messages a second pass in the long run, and Burst how many pass at once.
const (
	Rate  = 10
	Burst = 100
)

// New returns log with its rate limited. The first message after some were left out says how
// many, as messages_left_out. Debug messages always pass. For nil it returns a log that
// discards everything. A log that is limited already is returned unchanged.
func New(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	if _, ok := log.Handler().(handler); ok {
		return log
	}
	return slog.New(handler{log.Handler(), new(bucket)})
}

type handler struct {
	slog.Handler
	bucket *bucket // shared by all handlers derived from one
}

// Handle passes r on if there is a token for it.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return h.Handler.Handle(ctx, r)
	}
	dropped, ok := h.bucket.take(time.Now())
	if !ok {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.Add("messages_left_out", dropped)
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs shares the bucket.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.bucket}
}

// WithGroup shares the bucket.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.bucket}
}

type bucket struct {
	mu      sync.Mutex
	tokens  float64
	last    time.Time
	dropped int
}

// take takes one token, and returns the count of messages dropped since the last one.
func (b *bucket) take(now time.Time) (dropped int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last.IsZero() {
		b.tokens = Burst
	} else {
		b.tokens = min(Burst, b.tokens+Rate*now.Sub(b.last).Seconds())
	}
	b.last = now
	if b.tokens < 1 {
		b.dropped++
		return 0, false
	}
	b.tokens--
	dropped, b.dropped = b.dropped, 0
	return dropped, true
}
