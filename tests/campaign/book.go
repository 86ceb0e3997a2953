package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Kinds of executions.
const (
	guided   = "guided"
	unguided = "unguided"
)

// reached is what is known of a target.
type reached struct {
	executions, guided, findings int
	last                         string // date
}

// book is the log and what it says. Each line has a date, the target's directory and name, the kind
// of executions, how many there were, and whether the turn ended with a finding.
type book struct {
	log, page string
	all       map[target]*reached
}

func openBook(log, page string) (*book, error) {
	b := &book{log: log, page: page, all: map[target]*reached{}}
	text, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var date, kind string
		var t target
		var n, findings int
		if _, err := fmt.Sscan(line, &date, &t.dir, &t.name, &kind, &n, &findings); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", log, line, err)
		}
		b.count(t, date, kind, n, findings)
	}
	return b, nil
}

func (b *book) of(t target) reached {
	if r := b.all[t]; r != nil {
		return *r
	}
	return reached{}
}

func (b *book) count(t target, date, kind string, n, findings int) {
	r := b.all[t]
	if r == nil {
		r = &reached{}
		b.all[t] = r
	}
	r.executions += n
	r.findings += findings
	r.last = date
	if kind == guided {
		r.guided += n
	}
}

// add enters n executions, and whether they ended with a finding.
func (b *book) add(t target, kind string, n int, result error) error {
	findings := 0
	if errors.Is(result, errFinding) {
		findings = 1
	}
	if n == 0 && findings == 0 {
		return nil
	}
	date := time.Now().UTC().Format(time.DateOnly)
	b.count(t, date, kind, n, findings)
	f, err := os.OpenFile(b.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, date, t.dir, t.name, kind, n, findings)
	return errors.Join(err, f.Close())
}

// The page's table is between these lines.
const (
	tableBegins = "<!-- campaign -->\n"
	tableEnds   = "<!-- end of campaign -->\n"
)

// writePage brings the table of the page up to date.
func (b *book) writePage(all []target, goal int) error {
	text, err := os.ReadFile(b.page)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(text), tableBegins)
	_, tail, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no line %q with %q after it", b.page, tableBegins, tableEnds)
	}
	return os.WriteFile(b.page, []byte(head+tableBegins+b.table(all, goal)+tableEnds+tail), 0o644)
}

func (b *book) table(all []target, goal int) string {
	var s strings.Builder
	done := 0
	s.WriteString("\n| target | executions | of them guided | findings | last run |\n| --- | ---: | ---: | ---: | --- |\n")
	for _, t := range all {
		r := b.of(t)
		if r.executions >= goal {
			done++
		}
		fmt.Fprintf(&s, "| `%s` %s | %s | %s | %d | %s |\n", t.dir, t.name, humanize.Comma(int64(r.executions)), humanize.Comma(int64(r.guided)), r.findings, r.last)
	}
	fmt.Fprintf(&s, "\n%d of %d targets have reached %s executions.\n\n", done, len(all), humanize.Comma(int64(goal)))
	return s.String()
}
