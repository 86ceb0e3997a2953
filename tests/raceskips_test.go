package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// withoutRace matches the step of run.sh that runs without the race detector: its tests and its packages.
var withoutRace = regexp.MustCompile(`-run '\^\(([\w|]+)\)\$' \\\n((?:\s+\./\S+)+)`)

// TestRaceSkips: tests that skip under the race detector, with which run.sh runs unit tests, are also run without it, and
// what it names for that exists.
func TestRaceSkips(t *testing.T) {
	script := readFile(t, "run.sh")
	step := withoutRace.FindSubmatch(script)
	if step == nil {
		t.Fatal("run.sh has no step without the race detector")
	}
	run, packages := strings.Split(string(step[1]), "|"), strings.Fields(string(step[2]))
	found := 0
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == "../tests" { // whose tests run without anyway
			return err
		}
		for _, name := range raceSkips(t, path) {
			found++
			if !slices.Contains(run, name) || !slices.Contains(packages, "./"+strings.TrimPrefix(path, "../")) {
				t.Errorf("%s: %s skips under the race detector, and run.sh doesn't run it without", path, name)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Fatalf("no test skips under the race detector: %v", err)
	}
	for _, name := range run {
		if !slices.ContainsFunc(packages, func(dir string) bool { return testsIn(t, dir)[name] }) {
			t.Errorf("run.sh runs %s without the race detector, and none of %s has it", name, packages)
		}
	}
}

// raceSkips returns the tests of a package that skip if race.Enabled is set, by themselves or in a function that they
// call.
func raceSkips(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	calls, skips := map[string][]string{}, map[string]bool{}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				ast.Inspect(fn.Body, func(n ast.Node) bool {
					if c, ok := n.(*ast.CallExpr); ok {
						calls[fn.Name.Name] = append(calls[fn.Name.Name], called(c))
					}
					if i, ok := n.(*ast.IfStmt); ok && skipsUnderRace(i) {
						skips[fn.Name.Name] = true
					}
					return true
				})
			}
		}
	}
	for grown := true; grown; {
		grown = false
		for name, all := range calls {
			if !skips[name] && slices.ContainsFunc(all, func(c string) bool { return skips[c] }) {
				skips[name], grown = true, true
			}
		}
	}
	var tests []string
	for name := range skips {
		if strings.HasPrefix(name, "Test") {
			tests = append(tests, name)
		}
	}
	return tests
}

// called returns the name of the function that a call calls.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// skipsUnderRace reports whether i is `if race.Enabled { t.Skip(…) }`, perhaps with other reasons too.
func skipsUnderRace(i *ast.IfStmt) bool {
	if !holdsUnderRace(i.Cond) {
		return false
	}
	for _, s := range i.Body.List {
		if e, ok := s.(*ast.ExprStmt); ok {
			if c, ok := e.X.(*ast.CallExpr); ok && strings.HasPrefix(called(c), "Skip") {
				return true
			}
		}
	}
	return false
}

// holdsUnderRace reports whether cond is race.Enabled, or that or something else.
func holdsUnderRace(cond ast.Expr) bool {
	switch e := cond.(type) {
	case *ast.BinaryExpr:
		return e.Op == token.LOR && (holdsUnderRace(e.X) || holdsUnderRace(e.Y))
	case *ast.SelectorExpr:
		pkg, ok := e.X.(*ast.Ident)
		return ok && pkg.Name == "race" && e.Sel.Name == "Enabled"
	}
	return false
}
