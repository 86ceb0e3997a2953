package main

import (
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/sys/unix"

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

// file returns the file that w is, or writes to.
func file(w io.Writer) (f *os.File, ok bool) {
	if c, ok := w.(interface{ Unwrap() io.Writer }); ok { // the standard output or error of a command
		w = c.Unwrap()
	}
	f, ok = w.(*os.File)
	return f, ok
}

// isTerminal reports whether w is, or writes to, a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := file(w)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// rewrites reports whether w is a terminal on which a line can be rewritten.
func rewrites(w io.Writer) bool { return isTerminal(w) && os.Getenv("TERM") != "dumb" }

// columns returns the width of the terminal w; 0 if unknown.
func columns(w io.Writer) int {
	f, ok := file(w)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// fitted returns as much of a line as fits on one line of a terminal with that many columns: of a line that wraps,
// only the last part could be rewritten. An ellipsis marks what is left out.
func fitted(line string, columns int) string {
	if columns > 0 {
		return text.Snip(line, max(columns-1, 1), "…") // some terminals begin a new line after the last column
	}
	return line
}
