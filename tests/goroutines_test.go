package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGoroutinesListed: ARCHITECTURE.md lists, by file and function, exactly the places in the programs that start
// goroutines.
func TestGoroutinesListed(t *testing.T) {
	listed, found := listedStarters(t), map[string][]string{}
	for _, path := range programFiles(t) {
		if names := startersIn(t, path); len(names) > 0 {
			found[strings.TrimPrefix(path, "../")] = names
		}
	}
	if len(found) < 40 {
		t.Fatalf("goroutines are started in %d files only: are they looked for in the right places?", len(found))
	}
	for _, file := range slices.Sorted(maps.Keys(found)) {
		if !slices.Equal(found[file], listed[file]) {
			t.Errorf("%s starts goroutines in %q, and ARCHITECTURE.md lists %q", file, found[file], listed[file])
		}
	}
	for _, file := range slices.Sorted(maps.Keys(listed)) {
		if found[file] == nil {
			t.Errorf("ARCHITECTURE.md lists %s, which starts no goroutine", file)
		}
	}
}

// listedStarters returns the first two columns of the table: the functions of each file, sorted.
func listedStarters(t *testing.T) map[string][]string {
	t.Helper()
	text := readFile(t, "../ARCHITECTURE.md")
	_, table, _ := strings.Cut(string(text), "\n## Goroutines\n")
	table, _, _ = strings.Cut(table, "\n## ")
	listed := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		file, isRow := strings.CutPrefix(cells[0], "| `")
		if !isRow || len(cells) < 2 {
			continue
		}
		file = strings.TrimSuffix(file, "`")
		if listed[file] != nil {
			t.Errorf("ARCHITECTURE.md lists the goroutines of %s twice", file)
		}
		names := strings.Split(strings.ReplaceAll(cells[1], "`", ""), ", ")
		listed[file] = slices.Sorted(slices.Values(names))
	}
	return listed
}

// programFiles returns the sources of all packages that the programs consist of, for every system.
func programFiles(t *testing.T) (files []string) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}", "./cmd/...")
	cmd.Dir = ".."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	for _, p := range strings.Fields(string(out)) {
		all, err := filepath.Glob(filepath.Join("..", strings.TrimPrefix(p, module), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, slices.DeleteFunc(all, func(f string) bool { return strings.HasSuffix(f, "_test.go") })...)
	}
	return files
}

// startersIn returns the functions of a file that start goroutines, sorted.
func startersIn(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		starts := false
		ast.Inspect(d, func(n ast.Node) bool {
			starts = starts || startsGoroutine(n)
			return !starts
		})
		if starts {
			names = append(names, declared(d))
		}
	}
	slices.Sort(names)
	return names
}

// startsGoroutine reports whether n is a go statement, or a call of a method Go, like that of sync.WaitGroup and
// similar types.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		method, ok := n.Fun.(*ast.SelectorExpr)
		return ok && method.Sel.Name == "Go"
	}
	return false
}

// declared returns the name of a function, preceded by its receiver's type. Other declarations have no name.
func declared(d ast.Decl) string {
	f, ok := d.(*ast.FuncDecl)
	if !ok {
		return "a declaration"
	}
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	return types.ExprString(receiver) + "." + f.Name.Name
}
