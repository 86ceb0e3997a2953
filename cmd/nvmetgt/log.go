package main

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/internal/config"
)

func newLogger(cfg config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	if cfg.Level != "" {
		_ = level.UnmarshalText([]byte(cfg.Level)) // the configuration is valid
	}
	o := &slog.HandlerOptions{Level: level}
	if cfg.JSON {
		return slog.New(lossHandler{slog.NewJSONHandler(w, o), new(atomic.Int64)})
	}
	return slog.New(lossHandler{slog.NewTextHandler(w, o), new(atomic.Int64)})
}

// lossHandler counts the messages that standard error didn't take, and has the next one that it takes say how many
// there were, as messages_lost.
type lossHandler struct {
	slog.Handler
	lost *atomic.Int64 // shared by all handlers derived from one
}

func (h lossHandler) Handle(ctx context.Context, r slog.Record) error {
	lost := h.lost.Swap(0)
	if lost > 0 {
		r = r.Clone()
		r.Add("messages_lost", lost)
	}
	err := h.Handler.Handle(ctx, r)
	if err != nil {
		h.lost.Add(lost + 1)
	}
	return err
}

func (h lossHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lossHandler{h.Handler.WithAttrs(attrs), h.lost}
}

func (h lossHandler) WithGroup(name string) slog.Handler {
	return lossHandler{h.Handler.WithGroup(name), h.lost}
}
