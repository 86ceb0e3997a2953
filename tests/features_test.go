package tests

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	quoted    = regexp.MustCompile("`([^`]+)`")
	testNames = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// testsIn returns the names of the tests of a directory of the module.
func testsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("%s: there are no tests: %v", dir, err)
	}
	names := map[string]bool{}
	for _, f := range files {
		b := readFile(t, f)
		for _, m := range testNames.FindAllSubmatch(b, -1) {
			names[string(m[1])] = true
		}
	}
	return names
}

// namedTests returns the tests that text names in back quotes, each after the directory that it is in. One that doesn't
// exist is an error in what.
func namedTests(t *testing.T, what, text string, have map[string]map[string]bool) (n int) {
	t.Helper()
	dir := ""
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		name := m[1]
		if !strings.HasPrefix(name, "Test") {
			dir = name
			continue
		}
		n++
		if have[dir] == nil {
			have[dir] = testsIn(t, dir)
		}
		if !have[dir][name] {
			t.Errorf("%s: %s has no test %s", what, dir, name)
		}
	}
	return n
}

// TestFeaturesDocument: every test that docs/features.md names exists, and every feature that it claims names one.
func TestFeaturesDocument(t *testing.T) {
	b := readFile(t, "../docs/features.md")
	have := map[string]map[string]bool{}
	rows := 0
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") || len(cells) != 5 || strings.Contains(line, "| --- |") || strings.HasPrefix(line, "| feature ") {
			continue
		}
		rows++
		named := namedTests(t, strings.TrimSpace(cells[0]), cells[2], have)
		if ours := strings.TrimSpace(cells[1]); (ours == "no") != (named == 0) {
			t.Errorf("%s: ours is %q, and %d tests show it", strings.TrimSpace(cells[0]), ours, named)
		}
	}
	if rows < 40 {
		t.Errorf("%d rows were read", rows)
	}
}

// TestCommandsDocument: so does every test that docs/commands.md names.
func TestCommandsDocument(t *testing.T) {
	b := readFile(t, "../docs/commands.md")
	dirs := map[string]map[string]bool{"T": testsIn(t, "nvme/target"), "W": testsIn(t, "tests")}
	rows := 0
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if !strings.HasPrefix(line, "| ") || len(cells) < 4 {
			continue
		}
		rows++
		where := ""
		for _, word := range strings.FieldsFunc(cells[3], func(r rune) bool { return strings.ContainsRune(" ,`", r) }) {
			if len(word) == 1 {
				where = word
			} else if strings.HasPrefix(word, "Test") && !dirs[where][word] {
				t.Errorf("%s: no test %s %s", strings.TrimSpace(cells[1]), where, word)
			}
		}
	}
	if rows < 15 {
		t.Errorf("%d rows were read", rows)
	}
}

// TestVolumesDocument: so does every test that docs/volumes.md names, after the directory it is in.
func TestVolumesDocument(t *testing.T) {
	b := readFile(t, "../docs/volumes.md")
	named := namedTests(t, "docs/volumes.md", string(b), map[string]map[string]bool{})
	if named < 40 {
		t.Errorf("%d tests were read", named)
	}
}
