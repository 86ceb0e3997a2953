package main

import (
	"bufio"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestLiveNarrow: the line of a run is rewritten in place even on a terminal that is narrower than the line, where the
// cursor returns only to the beginning of what didn't fit.
func TestLiveNarrow(t *testing.T) {
	master, tty := pseudoTerminal(t)
	shows := bufio.NewReader(master)
	name := strings.Repeat("long", 20)
	p := &loadgen.Progress{Elapsed: 3 * time.Second, Left: time.Second}
	whole := name + ": " + liveText(p)
	for _, width := range []int{0, 1, 2, 40, 400} { // 0: unknown
		if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: uint16(width)}); err != nil {
			t.Fatal(err)
		}
		l := newLive(tty, true)
		l.begin(name)
		l.show(p)
		if _, err := tty.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
		line, err := shows.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		_, line, _ = strings.Cut(line, "\033[K")
		line = strings.TrimRight(line, "\r\n")
		switch n := utf8.RuneCountInString(line); {
		case width == 0, width == 400:
			if line != whole {
				t.Errorf("%d columns are shown %q of %q", width, line, whole)
			}
		case n != max(width-1, 1) || !strings.HasSuffix(line, "…"):
			t.Errorf("%d columns are shown %d letters: %q", width, n, line)
		}
	}
}

// TestLiveLatency: a latency just below a unit is shown in that unit, as on the page of the results.
func TestLiveLatency(t *testing.T) {
	text := liveText(&loadgen.Progress{Last: loadgen.Sample{P50: 12_345, P99: 999_700}})
	if !strings.Contains(text, "p50 12.3 µs  p99 1 ms") {
		t.Errorf("it shows %q", text)
	}
}

// TestProgressNarrow: the line of a copy doesn't reach the last column of a terminal, which would start a new line
// at each update.
func TestProgressNarrow(t *testing.T) {
	const width = 30
	master, tty := pseudoTerminal(t)
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: width}); err != nil {
		t.Fatal(err)
	}
	p := newProgress(tty, "read", 64<<20, false)
	p.add(8 << 20)
	lines := 0
	for shows := bufio.NewReader(master); ; lines++ {
		if lines == 2 {
			p.stop()
			if _, err := tty.WriteString("end\n"); err != nil {
				t.Fatal(err)
			}
		}
		line, err := shows.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "end" {
			break
		}
		if i := strings.LastIndex(line, "\033[K"); i >= 0 {
			line = line[i+len("\033[K"):]
		}
		if n := utf8.RuneCountInString(line); n >= width {
			t.Errorf("%d columns are shown %d letters: %q", width, n, line)
		}
	}
}

// TestProgressUnits: the bar counts in the same units as the summary that follows it, rounded.
func TestProgressUnits(t *testing.T) {
	master, tty := pseudoTerminal(t)
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: 120}); err != nil {
		t.Fatal(err)
	}
	p := newProgress(tty, "read", 64<<20, false)
	p.add(64 << 20)
	p.stop()
	if _, err := tty.WriteString("end\n"); err != nil {
		t.Fatal(err)
	}
	said := ""
	for shows := bufio.NewReader(master); !strings.Contains(said, "end\r\n"); {
		line, err := shows.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		said += line
	}
	if !strings.Contains(said, "64 MiB in ") || strings.Contains(said, "67.11") || strings.Contains(said, "bytes") {
		t.Errorf("it shows %q", said)
	}
}

// TestProgressOfNothing: a copy that is over before its line is shown also ends.
func TestProgressOfNothing(t *testing.T) {
	tty := terminal(t)
	stopped := make(chan struct{})
	go func() {
		newProgress(tty, "write", 0, false).stop()
		close(stopped)
	}()
	if _, ok := soon.Receive(stopped); !ok {
		t.Error("it didn't end")
	}
}

// TestDumbTerminal: a terminal that can't rewrite a line isn't sent escape sequences for that.
func TestDumbTerminal(t *testing.T) {
	tty := terminal(t)
	for term, live := range map[string]bool{"dumb": false, "xterm": true} {
		t.Setenv("TERM", term)
		p := newProgress(tty, "read", 1, false)
		p.stop()
		if l := newLive(tty, true); (l != nil) != live || (p != nil) != live {
			t.Errorf("TERM=%s: a live line %v, a bar %v", term, l != nil, p != nil)
		}
	}
}
