package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// target is a fuzz target of the tree.
type target struct {
	dir  string // of its package, in the tree
	name string
}

func (t target) String() string { return t.dir + " " + t.name }

var declaration = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)

// findTargets lists all targets.
func findTargets(ctx context.Context) ([]target, error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{range .TestGoFiles}} {{.}}{{end}}{{range .XTestGoFiles}} {{.}}{{end}}{{end}}`
	out, err := output(ctx, ".", nil, "go", "list", "-f", format, "./...")
	if err != nil {
		return nil, err
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var all []target
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		dir, err := filepath.Rel(here, fields[0])
		if err != nil {
			return nil, err
		}
		if dir == filepath.Join("internal", "fuzzing") {
			continue // its targets are examples
		}
		for _, file := range fields[1:] {
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				return nil, err
			}
			for _, m := range declaration.FindAllSubmatch(b, -1) {
				all = append(all, target{filepath.ToSlash(dir), string(m[1])})
			}
		}
	}
	return all, nil
}

// errFinding says that a target failed.
var errFinding = errors.New("a finding")

// builds are the test programs of the packages, made when they are needed.
type builds struct {
	dir    string
	corpus string // where Go's fuzzer keeps what it finds
	made   map[string]string
}

func newBuilds(ctx context.Context) (*builds, error) {
	cache, err := output(ctx, ".", nil, "go", "env", "GOCACHE")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "nvmeof-campaign-*")
	corpus := filepath.Join(strings.TrimSpace(cache), "fuzz", filepath.FromSlash("github.com/nvme-anywhere/nvmeof"))
	return &builds{dir: dir, corpus: corpus, made: map[string]string{}}, err
}

func (b *builds) remove() { _ = os.RemoveAll(b.dir) }

// program builds the tests of a package, with flags.
func (b *builds) program(ctx context.Context, dir string, flags ...string) (string, error) {
	key := dir + strings.Join(flags, " ")
	if path, ok := b.made[key]; ok {
		return path, nil
	}
	path := filepath.Join(b.dir, fmt.Sprintf("%d.test", len(b.made)))
	args := append(append([]string{"test", "-c", "-o", path}, flags...), "./"+dir)
	if _, err := output(ctx, ".", nil, "go", args...); err != nil {
		return "", err
	}
	b.made[key] = path
	return path, nil
}

// environment reduces garbage collection: many small worlds leave much garbage, and the heap is small.
var environment = []string{"GOGC=800"}

var guidedCount = regexp.MustCompile(`execs: (\d+) `)

// guided runs Go's fuzzer for at most n executions and the given time. It returns how many there were.
func (b *builds) guided(ctx context.Context, t target, n int, limit time.Duration) (int, error) {
	program, err := b.program(ctx, t.dir, "-fuzz", ".")
	if err != nil {
		return 0, err
	}
	out, err := output(ctx, t.dir, environment, program, "-test.run", "^$", "-test.fuzz", "^"+t.name+"$", "-test.parallel", "1",
		"-test.fuzztime", limit.String(), "-test.fuzzminimizetime", "1x", "-test.fuzzcachedir", filepath.Join(b.corpus, t.dir))
	// Go's fuzzer may report its own end of time as a failure.
	if err != nil && strings.Contains(err.Error(), "context deadline exceeded") && !strings.Contains(err.Error(), "Failing input") {
		err = nil
	}
	return min(n, last(guidedCount, out)), finding(ctx, t, err)
}

var unguidedCount = regexp.MustCompile(`campaign: \w+: (\d+) executions`)

// unguided makes at most n executions in the given time. It returns how many there were.
func (b *builds) unguided(ctx context.Context, t target, n int, limit time.Duration) (int, error) {
	program, err := b.program(ctx, t.dir)
	if err != nil {
		return 0, err
	}
	env := append([]string{
		"NVMEOF_FUZZ_EXECUTIONS=" + strconv.Itoa(n), "NVMEOF_FUZZ_TIME=" + limit.String(),
		"NVMEOF_FUZZ_CORPUS=" + filepath.Join(b.corpus, t.dir),
	}, environment...)
	out, err := output(ctx, t.dir, env, program, "-test.run", "^"+t.name+"$", "-test.timeout", (limit + hang).String())
	return last(unguidedCount, out), finding(ctx, t, err)
}

// hang is how long a target may continue after its turn before it counts as hanging: longer than a busy machine may
// hold it up.
const hang = 15 * time.Minute

// finding turns a target's failure into a finding, unless it was stopped.
func finding(ctx context.Context, t target, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%v: %w: %w", t, errFinding, err)
}

// last returns the number that the last match of re shows; 0 if there is none.
func last(re *regexp.Regexp, out string) int {
	all := re.FindAllStringSubmatch(out, -1)
	if len(all) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(all[len(all)-1][1])
	return n
}

// output runs a command in a directory and returns its output, which an error shows too.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 10 * time.Second
	out, err := c.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
