package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// TestLiveNarrow: the line of a run is written anew in its place on a terminal that is narrower, too. Each time that it
// was, such a terminal showed one line more.
func TestLiveNarrow(t *testing.T) {
	tty := terminal(t)
	p := &loadgen.Progress{Elapsed: 3 * time.Second, Left: time.Second}
	for _, width := range []int{1, 2, 40, 400} {
		if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: uint16(width)}); err != nil {
			t.Fatal(err)
		}
		whole := strings.Repeat("long", 20) + ": " + liveText(p)
		shown := fitted(whole, columns(tty))
		if n := utf8.RuneCountInString(shown); n > max(width-1, 1) {
			t.Errorf("%d columns are shown %d letters: %s", width, n, shown)
		}
		if width == 400 && shown != whole {
			t.Errorf("all would fit of %s", shown)
		}
	}
	if shown := fitted("what a pipe takes", columns(new(strings.Builder))); shown != "what a pipe takes" {
		t.Error(shown)
	}
}
