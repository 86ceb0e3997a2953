package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// results are those of one run.
type results struct {
	tests map[string]*test
	order []string // names of tests, as they began
	ended bool     // the run, rather than being cut off
	other bool     // something other than a test failed
}

func newResults() *results { return &results{tests: map[string]*test{}} }

// failed reports whether anything failed.
func (r *results) failed() bool {
	for _, t := range r.tests {
		if t.result != "pass" && t.result != "skip" {
			return true
		}
	}
	return r.other
}

// emulatorFault is the note of a test whose machine died of a mistake of QEMU.
const emulatorFault = "emulator-fault"

// emulatorFaults returns the names of tests with that note.
func (r *results) emulatorFaults() (all []string) {
	for _, name := range r.order {
		if slices.ContainsFunc(r.tests[name].notes, func(n [2]string) bool { return n[0] == emulatorFault }) {
			all = append(all, name)
		}
	}
	return all
}

// forget drops a test with everything that belongs to it.
func (r *results) forget(name string) {
	r.order = slices.DeleteFunc(r.order, func(n string) bool {
		if n != name && !strings.HasPrefix(n, name+"/") {
			return false
		}
		delete(r.tests, n)
		return true
	})
}

// test is one test of a run.
type test struct {
	place
	result string // pass, fail or skip; empty for one that didn't end
	notes  [][2]string
	said   string // the last line it logged

	parent    bool // it has subtests
	explained bool // one of them failed, which is why this one does
}

// place is a test's place in the matrix; it follows from its name.
type place struct {
	group     string // the test function
	what      string // the row
	peer      string // the column: kernel and MTU
	transport string // within the cell; may be empty
}

var (
	kernelPart    = regexp.MustCompile(`^\d+\.\d+$`)
	mtuPart       = regexp.MustCompile(`^(1500|9000)$`)
	transportPart = regexp.MustCompile(`^(rdma|tcp)$`)
)

// placeOf extracts the kernel, the MTU and the transport from the parts of a test's name.
func placeOf(name string) (p place) {
	parts := strings.Split(name, "/")
	p.group = parts[0]
	var what, peer []string
	for _, part := range parts[1:] {
		switch {
		case kernelPart.MatchString(part):
			peer = append(peer, part)
		case mtuPart.MatchString(part):
			peer = append(peer, "MTU "+part)
		case transportPart.MatchString(part):
			p.transport = strings.ToUpper(part)
		default:
			what = append(what, part)
		}
	}
	p.what, p.peer = strings.Join(what, "/"), strings.Join(peer, ", ")
	return p
}

func (r *results) add(e *event) {
	if e.Test == "" {
		r.ended = r.ended || slices.Contains([]string{"pass", "fail", "skip"}, e.Action)
		r.other = r.other || e.Action == "fail" && !r.failed()
		return
	}
	t := r.tests[e.Test]
	if t == nil {
		t = &test{place: placeOf(e.Test)}
		r.tests[e.Test] = t
		r.order = append(r.order, e.Test)
		for _, p := range r.above(e.Test) {
			p.parent = true
		}
	}
	switch e.Action {
	case "output":
		if why := logged(e.Output); why != "" {
			t.said = why
		}
	case "pass":
		t.result = e.Action
	case "skip":
		t.result = e.Action
		t.notes = append(t.notes, [2]string{"skipped", t.said})
	case "fail":
		t.result = e.Action
		for _, p := range r.above(e.Test) {
			p.explained = true
		}
	case "attr":
		t.notes = append(t.notes, [2]string{e.Key, e.Value})
	}
}

var logLine = regexp.MustCompile(`^ +[a-z0-9_]+\.go:\d+: (.*)\n`)

// logged returns the part of a line of output that a test logged.
func logged(output string) string {
	if m := logLine.FindStringSubmatch(output); m != nil {
		return m[1]
	}
	return ""
}

// above returns the tests that a test is a part of.
func (r *results) above(name string) (all []*test) {
	for i, c := range name {
		if t := r.tests[name[:i]]; c == '/' && t != nil {
			all = append(all, t)
		}
	}
	return all
}

// ordered returns the tests in the order in which they began, only those of the group.
func (r *results) ordered(group string) (all []*test) {
	for _, name := range r.order {
		if t := r.tests[name]; t.group == group {
			all = append(all, t)
		}
	}
	return all
}

func (r *results) groups() (all []string) {
	for _, name := range r.order {
		if g := r.tests[name].group; !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	return all
}

// markdown returns everything in a page's format.
func (r *results) markdown() string {
	var b strings.Builder
	for _, g := range r.groups() {
		fmt.Fprintf(&b, "\n### %s\n", heading(g))
		tests := r.ordered(g)
		matrix(&b, tests)
		notes(&b, tests)
	}
	return b.String()
}

// matrix writes the results of the tests that have no subtests, or that failed by themselves: a row for each thing and
// a column for each peer.
func matrix(b *strings.Builder, tests []*test) {
	var rows, peers []string
	cells := map[[2]string][]string{}
	for _, t := range tests {
		if t.parent && (t.result != "fail" || t.explained) {
			continue
		}
		if !slices.Contains(rows, t.what) {
			rows = append(rows, t.what)
		}
		if !slices.Contains(peers, t.peer) {
			peers = append(peers, t.peer)
		}
		at := [2]string{t.what, t.peer}
		cells[at] = append(cells[at], t.cell())
	}
	slices.SortFunc(peers, byVersion)
	fmt.Fprintf(b, "\n| | | %s |\n|---|---|%s\n", strings.Join(peers, " | "), strings.Repeat("---|", len(peers)))
	subject := ""
	for _, row := range rows {
		about, what, ok := strings.Cut(description(row), ": ")
		if !ok {
			about, what = "", about
		}
		if about == subject {
			about = "" // said in the row above
		} else {
			subject = about
		}
		fmt.Fprintf(b, "| %s | %s |", about, what)
		for _, p := range peers {
			fmt.Fprintf(b, " %s |", strings.Join(cells[[2]string{row, p}], ", "))
		}
		b.WriteString("\n")
	}
}

// cell returns the cell's text for the test: the transport over which it passed, or more for other results.
func (t *test) cell() string {
	name := t.transport
	switch {
	case t.result == "pass" && name == "":
		return "passed"
	case t.result == "pass":
		return name
	case t.result == "skip":
		return strings.TrimSpace(name + " skipped")
	case t.result == "fail":
		return strings.TrimSpace(name + " **failed**")
	}
	return strings.TrimSpace(name + " **didn't end**")
}

// byVersion compares names with numbers in them: 6.1 comes before 6.12, and that before 7.0.
func byVersion(a, b string) int {
	return slices.Compare(numbers(a), numbers(b))
}

var number = regexp.MustCompile(`\d+`)

func numbers(s string) (all []int) {
	for _, d := range number.FindAllString(s, -1) {
		n := 0
		_, _ = fmt.Sscan(d, &n)
		all = append(all, n)
	}
	return all
}

// noted is what the tests of a row noted under one key.
type noted struct {
	what, key string
	values    []string
	by        map[string][]string // who noted the value
}

// notes writes what the tests noted: a line for each value, or a block if it has several lines, or a table if these
// have tabs.
func notes(b *strings.Builder, tests []*test) {
	var all []*noted
	for _, t := range tests {
		for _, kv := range t.notes {
			i := slices.IndexFunc(all, func(n *noted) bool { return n.what == t.what && n.key == kv[0] })
			if i < 0 {
				i = len(all)
				all = append(all, &noted{what: t.what, key: kv[0], by: map[string][]string{}})
			}
			n := all[i]
			if n.by[kv[1]] == nil {
				n.values = append(n.values, kv[1])
			}
			n.by[kv[1]] = append(n.by[kv[1]], strings.TrimSpace(t.peer+" "+t.transport))
		}
	}
	for _, n := range all {
		n.write(b)
	}
}

func (n *noted) write(b *strings.Builder) {
	title := strings.ReplaceAll(n.key, "-", " ")
	if n.what != "" {
		title = description(n.what) + ": " + title
	}
	fmt.Fprintf(b, "\n#### %s\n\n", title)
	for _, v := range n.values {
		by := n.by[v]
		slices.SortStableFunc(by, byVersion)
		who := strings.Join(slices.Compact(by), "; ")
		lines := strings.Split(v, lineBreak)
		switch {
		case len(lines) == 1:
			fmt.Fprintf(b, "- %s: %s\n", who, v)
		case strings.Contains(v, "\t"):
			fmt.Fprintf(b, "%s:\n\n", who)
			writeTable(b, lines)
		default:
			fmt.Fprintf(b, "%s:\n\n    %s\n\n", who, strings.Join(lines, "\n    "))
		}
	}
}

// writeTable writes lines whose cells are joined by tabs, a header and rows.
func writeTable(b *strings.Builder, lines []string) {
	for i, line := range lines {
		fmt.Fprintf(b, "| %s |\n", strings.ReplaceAll(line, "\t", " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", 1+strings.Count(line, "\t")))
		}
	}
	b.WriteString("\n")
}

// lineBreak stands for the end of a line in a note, which can't contain one.
const lineBreak = " | "
