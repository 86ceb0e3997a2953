package main

import (
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/sys/unix"
)

// progressBar is a line that shows how far a copy is; a nil one shows nothing.
type progressBar struct {
	writer  progress.Writer
	tracker *progress.Tracker
	done    chan struct{}
}

// newProgress shows progress towards total bytes (0 or less: unknown) on w, where that is a
// terminal.
func newProgress(w io.Writer, what string, total int64, quiet bool) *progressBar {
	if quiet || !rewrites(w) {
		return nil
	}
	p := &progressBar{
		writer:  progress.NewWriter(),
		tracker: &progress.Tracker{Message: what, Total: max(total, 0), Units: progress.UnitsBytes},
		done:    make(chan struct{}),
	}
	p.writer.SetOutputWriter(w)
	if n := columns(w); n > 0 {
		p.writer.SetTerminalWidth(max(n-1, 1)) // of a longer line only the last part would be written anew
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
		case <-time.After(10 * time.Millisecond): // it had not begun, of which Stop takes no notice
		}
	}
}

// isTerminal reports whether w is a terminal, or writes to one.
func isTerminal(w io.Writer) bool {
	if c, ok := w.(interface{ Unwrap() io.Writer }); ok { // the standard output of a command
		w = c.Unwrap()
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// rewrites reports whether w is a terminal on which a line can be written anew.
func rewrites(w io.Writer) bool { return isTerminal(w) && os.Getenv("TERM") != "dumb" }

// columns is the width of the terminal that w is; 0 where it doesn't say.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// fitted is as much of a line as a terminal of so many columns shows in one: of what it breaks, only the last part can be
// written anew. What is left out shows as an ellipsis.
func fitted(line string, columns int) string {
	if columns > 0 {
		return text.Snip(line, max(columns-1, 1), "…") // in the last column some begin a line
	}
	return line
}
