// Command interop runs the tests of tests/linux, passes on the parts of their output that people want to see, and makes
// the matrix of docs/interop.md from it: what was run against what, how it went, and what the tests noted
// (testing.T.Attr). It exits with 1 if anything failed.
//
//	interop -page docs/interop.md go test -json ./tests/linux
//
// QEMU's mistakes are not the peers' (emulatorFault): tests whose machine died of one are run once more.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/nvme-anywhere/nvmeof/tests/page"
)

func main() {
	path := flag.String("page", "", "`FILE` whose part between the markers is written anew; none: only tests' output")
	flag.Parse()
	if err := run(flag.Args(), os.Stdout, *path); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

// run is the command; its arguments are those of go test.
func run(command []string, out io.Writer, path string) error {
	if len(command) == 0 {
		return errors.New("which command runs the tests? (go test -json ./tests/linux)")
	}
	r := newResults()
	if err := r.read(command, out); err != nil {
		return err
	}
	for _, name := range r.emulatorFaults() {
		fmt.Fprintf(out, "\ninterop: QEMU made a mistake in %s, which runs once more\n", name)
		r.forget(name)
		if err := r.read(append(command, "-run", exactly(name)), out); err != nil {
			return err
		}
	}
	return r.judge(path)
}

// read adds the results of a command.
func (r *results) read(command []string, out io.Writer) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := r.addAll(events, out); err != nil {
		return errors.Join(err, cmd.Wait())
	}
	_ = cmd.Wait() // the events say whether tests failed
	return nil
}

// exactly returns the pattern that matches just one test (go help testflag).
func exactly(name string) string {
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
}

var errFailed = errors.New("tests failed")

// judge writes the page, and reports whether all is well.
func (r *results) judge(path string) error {
	if !r.ended || len(r.tests) == 0 {
		return errors.New("the tests didn't run to their end")
	}
	if path != "" {
		if err := page.Rewrite(path, begin, end, "\n"+strings.TrimSpace(r.markdown())+"\n\n"); err != nil {
			return err
		}
	}
	if r.failed() {
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

// addAll gathers the results of a run and copies its output to w.
func (r *results) addAll(in io.Reader, w io.Writer) error {
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
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Markers of the part of the page that is generated.
const (
	begin = "<!-- begin of what `make interop` writes -->\n"
	end   = "<!-- end of what `make interop` writes -->\n"
)
