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

// OwnRate and OwnBurst are how many more of each kind pass, whatever else is logged: a flood of one
// kind, which any stranger may cause, doesn't hide what is said of a disk or another host. Messages
// are of one kind if the same place in the code logs them.
const (
	OwnRate  = 1
	OwnBurst = 5
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
	return slog.New(handler{log.Handler(), &limiter{all: bucket{rate: Rate, burst: Burst}, own: map[uintptr]*bucket{}}})
}

type handler struct {
	slog.Handler
	limiter *limiter // shared by all handlers derived from one
}

// Handle passes r on if the limits allow it.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return h.Handler.Handle(ctx, r)
	}
	dropped, ok := h.limiter.take(r.PC, time.Now())
	if !ok {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.Add("messages_left_out", dropped)
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs shares the limits.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.limiter}
}

// WithGroup shares the limits.
func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.Handler.WithGroup(name), h.limiter}
}

type limiter struct {
	mu      sync.Mutex
	all     bucket
	own     map[uintptr]*bucket // by the place in the code
	dropped int
}

// take reports whether a message of the given kind passes, and returns the count of messages dropped
// since the last one that did.
func (l *limiter) take(kind uintptr, now time.Time) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.all.take(now) && !l.kind(kind).take(now) {
		l.dropped++
		return 0, false
	}
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}

func (l *limiter) kind(kind uintptr) *bucket {
	b := l.own[kind]
	if b == nil {
		b = &bucket{rate: OwnRate, burst: OwnBurst}
		l.own[kind] = b
	}
	return b
}

type bucket struct {
	rate, burst float64
	tokens      float64
	last        time.Time // zero: it is full
}

// take takes a token if there is one.
func (b *bucket) take(now time.Time) bool {
	if b.last.IsZero() {
		b.tokens = b.burst
	} else {
		b.tokens = min(b.burst, b.tokens+b.rate*now.Sub(b.last).Seconds())
	}
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
