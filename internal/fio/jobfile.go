package fio

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
)

// SyntaxError reports a line of a job file that can't be used.
type SyntaxError struct {
	File string
	Line int
	Err  error
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }
func (e *SyntaxError) Unwrap() error { return e.Err }

// File is a job file.
type File struct {
	Global map[string]string // the options of [global] sections, as they were written
	Jobs   []*Job
	Idle   Idles // options that change nothing
}

// globalSection is how the name of a section begins that applies to all jobs after it. fio reads no further, so that
// [globals] is one, too.
const globalSection = "global"

// maxLine is the longest line of a job file, in bytes.
const maxLine = bufio.MaxScanTokenSize

// Parse reads a job file: sections in brackets, each a job, of lines "option=value" or "option"; the options of a
// section [global] apply to all jobs after it. Text after a # or ; is a comment, ${NAME} is an environment
// variable, and $ncpus, $pagesize and $mb_memory describe the machine. The error is a *SyntaxError with the name of
// the file, unless r fails.
func Parse(name string, r io.Reader) (*File, error) {
	f := new(File)
	global := NewJob("global")
	var job *Job // of the current section
	var unknown strangers
	lines := bufio.NewScanner(r)
	n := 0
	for lines.Scan() {
		n++
		line := uncomment(lines.Text())
		bad := func(format string, a ...any) (*File, error) {
			return nil, &SyntaxError{name, n, fmt.Errorf(format, a...)}
		}
		switch {
		case line == "":
		case strings.ContainsFunc(line, shapeless):
			return bad("%q: want no control characters, which a terminal would obey", line)
		case line[0] == '[':
			section, ok := strings.CutSuffix(line[1:], "]")
			if section = strings.TrimSpace(section); !ok || section == "" {
				return bad("%s: want a section, as [global] or [job]", line)
			}
			if strings.HasPrefix(section, globalSection) {
				job = global
				continue
			}
			job = global.Section(section)
			f.Jobs = append(f.Jobs, job)
		case strings.HasPrefix(line, "include "):
			return bad("include: %s", foreign["include"])
		case job == nil:
			return bad("%q: want a section first, as [global] or [job]", line)
		default:
			if err := f.take(job, n, line); err != nil && !unknown.add(n, err) {
				return bad("%w", err)
			}
		}
	}
	if len(unknown) > 0 {
		return nil, &SyntaxError{name, unknown[0].line, unknown.err()}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return nil, &SyntaxError{name, n + 1, fmt.Errorf("the line is longer than %d bytes", maxLine)}
		}
		return nil, err
	}
	if len(f.Jobs) == 0 {
		return nil, &SyntaxError{name, max(n, 1), errors.New("no job: want a section, as [job]")}
	}
	f.Global = global.Given()
	return f, nil
}

// shapeless reports whether r would do something to a terminal in place of being shown: names of jobs, and text in
// errors, are printed.
func shapeless(r rune) bool { return r != '\t' && !unicode.IsGraphic(r) }

// uncomment returns the part of a line before a comment.
func uncomment(line string) string {
	if i := strings.IndexAny(line, "#;"); i >= 0 {
		line = line[:i]
	}
	return strings.TrimSpace(line)
}

// take handles line n, which has an option of job.
func (f *File) take(job *Job, n int, line string) error {
	line, err := expand(line)
	if err != nil {
		return err
	}
	option, value, _ := strings.Cut(line, "=")
	option, value = strings.TrimSpace(option), replaceKeywords(strings.TrimSpace(value))
	taken, err := f.Idle.take(n, option, value)
	if err != nil || taken {
		return err
	}
	return job.Set(option, value)
}

// expand replaces references to environment variables, such as ${NAME}, by their values. fio treats a missing
// variable as empty; here it is an error, because otherwise an option could silently lose a part of its value.
func expand(line string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(line, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", fmt.Errorf("%s: want a name in braces, as ${SIZE}", line)
		}
		value, set := os.LookupEnv(name)
		if !set {
			return "", fmt.Errorf("${%s}: the environment has no %s", name, name)
		}
		b.WriteString(value)
		line = after
	}
}
