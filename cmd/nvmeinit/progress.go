package main

import (
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// progressBar is a line that shows the progress of a copy; a nil one shows nothing.
type progressBar struct {
	writer  progress.Writer
	tracker *progress.Tracker
	done    chan struct{}
}

// units are those of the summaries, but without the exact number of bytes, for which a line has no room.
var units = progress.Units{Formatter: func(n int64) string { return humanize.IBytes(uint64(n)) }}

// newProgress shows progress towards total bytes (0 or less: unknown) on w, if that is a terminal.
func newProgress(w io.Writer, what string, total int64, quiet bool) *progressBar {
	if quiet || !rewrites(w) {
		return nil
	}
	p := &progressBar{
		writer:  progress.NewWriter(),
		tracker: &progress.Tracker{Message: what, Total: max(total, 0), Units: units},
		done:    make(chan struct{}),
	}
	p.writer.SetOutputWriter(cli.Transient(w))
	if n := columns(w); n > 0 {
		p.writer.SetTerminalWidth(max(n-1, 1)) // of a longer line only the last part would be rewritten
	}
	p.writer.SetUpdateFrequency(100 * time.Millisecond)
	p.writer.Style().Visibility.ETA = true
	p.writer.Style().Visibility.Speed = true
	p.writer.AppendTracker(p.tracker)
	go func() { p.writer.Render(); close(p.done) }()
	return p
}

func (p *progressBar) add(n int) {
	if p != nil {
		p.tracker.Increment(int64(n))
	}
}

func (p *progressBar) stop() {
	if p == nil {
		return
	}
	p.tracker.MarkAsDone()
	for {
		p.writer.Stop()
		select {
		case <-p.done:
			return
		case <-time.After(10 * time.Millisecond): // rendering had not begun yet, in which case Stop does nothing
		}
	}
}
