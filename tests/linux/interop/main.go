// Command interop reads what `go test -json ./tests/linux` writes, passes on what people want to
// see of it, and makes the matrix of docs/interop.md of it: what was run against what, how it
// went, and what the tests noted (testing.T.Attr). It exits with 1 where anything failed.
//
//	go test -json ./tests/linux | interop -page docs/interop.md
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	page := flag.String("page", "", "`FILE` whose part between the markers is written anew; none: only tests' output")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *page); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

var errFailed = errors.New("tests failed")

func run(in io.Reader, out io.Writer, page string) error {
	r, err := read(in, out)
	if err != nil {
		return err
	}
	if !r.ended || len(r.tests) == 0 {
		return errors.New("the tests didn't run to their end")
	}
	if page != "" {
		if err := rewrite(page, r.markdown()); err != nil {
			return err
		}
	}
	if r.failed {
		return errFailed
	}
	return nil
}

// event is one line of test2json(1).
type event struct {
	Action     string
	Test       string
	Output     string
	Key, Value string // of an attribute
}

// read gathers the results of a run and copies its output to w.
func read(in io.Reader, w io.Writer) (*results, error) {
	r := &results{tests: map[string]*test{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &e) != nil:
			_, _ = w.Write(line) // it says why there are no events
		default:
			_, _ = io.WriteString(w, e.Output)
			r.add(&e)
		}
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Markers of the part of the page that is generated.
const (
	begin = "<!-- begin of what `make interop` writes -->\n"
	end   = "<!-- end of what `make interop` writes -->\n"
)

// rewrite puts text between the markers of a file.
func rewrite(name, text string) error {
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	head, rest, ok := bytes.Cut(old, []byte(begin))
	_, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return fmt.Errorf("%s has no markers: want a line %q and after it %q", name, begin, end)
	}
	//nolint:gosec // the user names the file
	return os.WriteFile(name, fmt.Appendf(nil, "%s%s\n%s\n\n%s%s", head, begin, strings.TrimSpace(text), end, tail), 0o644)
}
