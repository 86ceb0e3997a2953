package roce

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The package comment says which file to look in for what: all of them.
func TestDocNamesFiles(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.FieldsFunc(string(doc), func(r rune) bool { return strings.ContainsRune(" ,\n\t()", r) })
	named := map[string]bool{"doc.go": true}
	for _, w := range words {
		if strings.HasSuffix(w, ".go") {
			named[w] = true
		}
	}
	for _, file := range files {
		if !named[file] && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("doc.go doesn't say what %s is for", file)
		}
		delete(named, file)
	}
	for file := range named {
		t.Errorf("doc.go names %s, which isn't there", file)
	}
}
