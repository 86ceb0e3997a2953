// Command results reads the output of `go test -json` and prints what people need of it: a line for each package, all
// output of what failed, and which tests were skipped and why. It exits with 1 if anything failed.
//
//	go test -json ./... | results -skipped FILE
//
// The tests that were skipped are appended to FILE, a line each.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	skipped := flag.String("skipped", "", "file to append the names of skipped tests to")
	flag.Parse()
	r := newReport(os.Stdout)
	err := r.read(os.Stdin)
	if err == nil && *skipped != "" {
		err = r.appendSkipped(*skipped)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "results: %v\n", err)
		os.Exit(1)
	}
	if r.failed {
		os.Exit(1)
	}
}

// event is one line of test2json(1).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Elapsed     float64 // s
	Output      string
	FailedBuild string
}

// unit is a package, or a test in one.
type unit struct{ pkg, test string }

// report gathers events.
type report struct {
	w       io.Writer
	output  map[unit][]string
	builds  map[string][]string // output of builds, by import path
	skipped []string
	failed  bool
}

func newReport(w io.Writer) *report {
	return &report{w: w, output: map[unit][]string{}, builds: map[string][]string{}}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// line handles one line; one that isn't an event is passed on, since it says why there are none.
func (r *report) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		fmt.Fprintf(r.w, "%s", line)
		return
	}
	u := unit{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
	case "output":
		r.output[u] = append(r.output[u], e.Output)
	case "pass", "skip", "fail":
		r.ended(&e, u)
		delete(r.output, u)
	}
}

func (r *report) ended(e *event, u unit) {
	switch {
	case e.Action == "fail":
		r.failed = true
		r.fail(e, u)
	case e.Action == "skip" && e.Test != "":
		r.skipped = append(r.skipped, fmt.Sprintf("%s %s: %s", short(e.Package), e.Test, reason(r.output[u])))
	case e.Action == "pass" && e.Test == "":
		fmt.Fprintf(r.w, "  %-28s %6.1f s\n", short(e.Package), e.Elapsed)
	case e.Action == "pass" && slices.ContainsFunc(r.output[u], isRace):
		r.show(u)
	}
}

func (r *report) fail(e *event, u unit) {
	for _, out := range r.builds[e.FailedBuild] {
		fmt.Fprint(r.w, out)
	}
	r.show(u)
	if e.Test == "" {
		r.unfinished(e.Package)
		fmt.Fprintf(r.w, "  %-28s FAILED after %.1f s\n", short(e.Package), e.Elapsed)
	}
}

// isRace recognizes a data race. If it is that of a goroutine that a test left behind, only its package fails, and a test
// that passes has the output.
func isRace(line string) bool { return strings.HasPrefix(line, "WARNING: DATA RACE") }

func (r *report) show(u unit) { fmt.Fprint(r.w, strings.Join(r.output[u], "")) }

// unfinished shows the output of tests that never ended: one of them crashed the others.
func (r *report) unfinished(pkg string) {
	for u := range r.output {
		if u.pkg == pkg && u.test != "" {
			r.show(u)
			delete(r.output, u)
		}
	}
}

// reason returns what a skipped test said: its output without what the testing package adds.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		// file_test.go:12: text
		if _, text, ok := strings.Cut(line, ".go:"); ok {
			if _, text, ok = strings.Cut(text, ": "); ok {
				line = text
			}
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return "it doesn't say why"
	}
	return strings.Join(said, " ")
}

// short returns the package's path inside the module.
func short(pkg string) string {
	if _, in, ok := strings.Cut(pkg, "/nvmeof/"); ok {
		return in
	}
	return pkg
}

func (r *report) appendSkipped(path string) error {
	if len(r.skipped) == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, strings.Join(r.skipped, "\n")); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
