package main

import (
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/sys/unix"
)

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
