package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/nvme-anywhere/nvmeof/tests/page"
)

// Kinds of executions.
const (
	guided   = "guided"
	unguided = "unguided"
)

// reached is the progress of a target.
type reached struct {
	executions, guided, findings int
	last                         string // date
}

// line is what was done with a target on one day.
type line struct {
	date string
	target
	kind string
}

// book is the log and its content. Each line has a date, the target's directory and name, the kind of executions, how
// many there were, and how many turns ended with a finding.
type book struct {
	log, page string
	lines     []line
	sums      map[line]*sum
	all       map[target]*reached
}

type sum struct{ executions, findings int }

func openBook(log, page string) (*book, error) {
	b := &book{log: log, page: page, sums: map[line]*sum{}, all: map[target]*reached{}}
	text, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for text := range strings.Lines(string(text)) {
		var l line
		var s sum
		if _, err := fmt.Sscan(text, &l.date, &l.dir, &l.name, &l.kind, &s.executions, &s.findings); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", log, text, err)
		}
		b.count(l, s)
	}
	return b, nil
}

func (b *book) of(t target) reached {
	if r := b.all[t]; r != nil {
		return *r
	}
	return reached{}
}

func (b *book) count(l line, s sum) {
	if b.sums[l] == nil {
		b.sums[l] = &sum{}
		b.lines = append(b.lines, l)
	}
	b.sums[l].executions += s.executions
	b.sums[l].findings += s.findings
	r := b.all[l.target]
	if r == nil {
		r = &reached{}
		b.all[l.target] = r
	}
	r.executions += s.executions
	r.findings += s.findings
	r.last = l.date
	if l.kind == guided {
		r.guided += s.executions
	}
}

// add enters n executions, and whether they ended with a finding.
func (b *book) add(t target, kind string, n int, result error) error {
	s := sum{executions: n}
	if errors.Is(result, errFinding) {
		s.findings = 1
	}
	if s == (sum{}) {
		return nil
	}
	b.count(line{time.Now().UTC().Format(time.DateOnly), t, kind}, s)
	var text []byte
	for _, l := range b.lines {
		s := b.sums[l]
		text = fmt.Appendln(text, l.date, l.dir, l.name, l.kind, s.executions, s.findings)
	}
	return os.WriteFile(b.log, text, 0o644)
}

// The page's table is between these lines.
const (
	tableBegins = "<!-- campaign -->\n"
	tableEnds   = "<!-- end of campaign -->\n"
)

// writePage updates the table of the page.
func (b *book) writePage(all []target, goal int) error {
	return page.Rewrite(b.page, tableBegins, tableEnds, b.table(all, goal))
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
		fmt.Fprintf(&s, "| `%s` %s | %s | %s | %d | %s |\n", t.dir, t.name,
			humanize.Comma(int64(r.executions)), humanize.Comma(int64(r.guided)), r.findings, r.last)
	}
	fmt.Fprintf(&s, "\n%d of %d targets have reached %s executions.\n\n", done, len(all), humanize.Comma(int64(goal)))
	return s.String()
}
