package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mostKept is how many entries a target may have in the tree.
const mostKept = 40

// keepAll keeps in the tree what Go's fuzzer found and what tests would otherwise not cover.
func keepAll(ctx context.Context, all []target, only *regexp.Regexp, builds *builds) error {
	for _, t := range all {
		if !only.MatchString(t.String()) {
			continue
		}
		kept, of, err := keep(ctx, t, builds)
		if err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		fmt.Printf("  %-24s %-28s %3d of %d\n", t.dir, t.name, kept, of)
	}
	return nil
}

// candidate is an entry that was found.
type candidate struct {
	file   string // in the tree
	size   int64
	blocks map[string]bool // of the package's code that it runs
}

// keep copies everything found for t into the tree, and removes again what covers no more than the seeds, the existing
// entries and the others do. It returns how many of how many are kept.
func keep(ctx context.Context, t target, builds *builds) (kept, of int, err error) {
	program, err := builds.program(ctx, t.dir, "-cover", "-covermode", "set", "-coverpkg", "./"+t.dir)
	if err != nil {
		return 0, 0, err
	}
	covered, err := builds.coverage(ctx, t, program, "")
	if err != nil {
		return 0, 0, err
	}
	found, err := builds.candidates(ctx, t, program)
	of = len(found)
	for ; err == nil && kept < mostKept; kept++ {
		best := -1
		for i, most := 0, 0; i < len(found); i++ {
			n := more(found[i].blocks, covered)
			if n > most || n > 0 && n == most && found[i].size < found[best].size {
				best, most = i, n
			}
		}
		if best < 0 {
			break
		}
		for block := range found[best].blocks {
			covered[block] = true
		}
		found = append(found[:best], found[best+1:]...)
	}
	for _, c := range found {
		err = errors.Join(err, os.Remove(c.file))
		_ = os.Remove(filepath.Dir(c.file)) // if it is empty
	}
	return kept, of, err
}

// more returns how many of blocks aren't covered.
func more(blocks, covered map[string]bool) (n int) {
	for b := range blocks {
		if !covered[b] {
			n++
		}
	}
	return n
}

// candidates copies what Go's fuzzer found for t into the tree, except what is there already, and what doesn't pass any
// more because it dates from a time when the target had other arguments.
func (b *builds) candidates(ctx context.Context, t target, program string) (all []candidate, err error) {
	dir := filepath.Join(t.dir, "testdata", "fuzz", t.name)
	files, err := filepath.Glob(filepath.Join(b.corpus, t.dir, t.name, "*"))
	if err != nil || len(files) == 0 {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, from := range files {
		c := candidate{file: filepath.Join(dir, filepath.Base(from))}
		if _, err := os.Stat(c.file); err == nil {
			continue
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return all, err
		}
		c.size = int64(len(text))
		if err := os.WriteFile(c.file, text, 0o644); err != nil {
			return all, err
		}
		c.blocks, err = b.coverage(ctx, t, program, "/^"+filepath.Base(from)+"$")
		if err == nil {
			all = append(all, c)
		} else if err := errors.Join(os.Remove(c.file), ctx.Err()); err != nil {
			return all, err
		}
	}
	_ = os.Remove(dir) // if it is empty
	return all, nil
}

// coverage returns what the tests of t that match filter execute of its package.
func (b *builds) coverage(ctx context.Context, t target, program, filter string) (map[string]bool, error) {
	profile := filepath.Join(b.dir, "profile")
	if _, err := output(ctx, t.dir, nil, program, "-test.run", "^"+t.name+"$"+filter, "-test.coverprofile", profile); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	blocks := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if block, ok := strings.CutSuffix(strings.TrimSpace(line), " 1"); ok {
			blocks[block] = true
		}
	}
	return blocks, nil
}
