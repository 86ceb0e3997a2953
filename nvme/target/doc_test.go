package target

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The package comment says which file to look in for what. It names all files that exist, and no others.
func TestDocNamesFiles(t *testing.T) {
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	_, table, found := strings.Cut(doc, "# Where to change what")
	if !found {
		t.Fatal("there is no table of files")
	}
	name := regexp.MustCompile(`\b[a-z_]+\.go\b`)
	inTable := map[string]bool{"doc.go": true}
	for _, file := range name.FindAllString(table, -1) {
		inTable[file] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, file := range files {
		there[file] = true
		if !strings.HasSuffix(file, "_test.go") && !inTable[file] {
			t.Errorf("doc.go doesn't say what %s is for", file)
		}
	}
	for _, file := range name.FindAllString(doc, -1) {
		if !there[file] {
			t.Errorf("doc.go names %s, which isn't there", file)
		}
	}
}
