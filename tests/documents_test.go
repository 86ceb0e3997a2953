package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are the texts for people, in order.
func documents(t *testing.T) []string {
	t.Helper()
	paths := []string{readme, "../ARCHITECTURE.md", "../BENCHMARKS.md", "../examples/README.md"}
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("../docs has no documents: %v", err)
	}
	return append(paths, docs...)
}

var (
	fencedBlock = regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$")
	// aCommand matches one of the programs at a place where a shell expects a command.
	aCommand = regexp.MustCompile(`(?:^|&& |\| |; |\$ |\$\()((?:bin/)?nvme(?:tgt|init) [^|;&)]*)`)
)

// shellCommands returns the command lines of the programs in lines for a shell, without comments and with continued
// lines joined.
func shellCommands(text string) (commands []string) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
		for _, m := range aCommand.FindAllStringSubmatch(line, -1) {
			commands = append(commands, strings.TrimPrefix(strings.TrimSpace(m[1]), "bin/"))
		}
	}
	return commands
}

// documentCommands returns the command lines of the programs in a document: those in blocks, and those in back quotes
// in its sentences.
func documentCommands(text string) (commands []string) {
	for _, m := range fencedBlock.FindAllStringSubmatch(text, -1) {
		if slices.Contains([]string{"sh", "console"}, m[1]) {
			commands = append(commands, shellCommands(m[2])...)
		}
	}
	for _, m := range quoted.FindAllStringSubmatch(fencedBlock.ReplaceAllString(text, ""), -1) {
		commands = append(commands, shellCommands(strings.ReplaceAll(m[1], "\n", " "))...)
	}
	return commands
}

// TestDocumentedCommands: the programs accept every command line of the documents, with its flags and their values.
func TestDocumentedCommands(t *testing.T) {
	if err := buildPrograms(); err != nil {
		t.Fatal(err)
	}
	checked := map[string]bool{}
	for _, path := range documents(t) {
		b := readFile(t, path)
		for _, command := range documentCommands(string(b)) {
			if !checked[command] {
				checked[command] = true
				parses(t, path, command)
			}
		}
	}
	if len(checked) < 70 {
		t.Errorf("%d commands were found", len(checked))
	}
}

// parses has a program just parse a command line: asked for help, it parses all flags before it prints that. The last
// flag in a sentence may lack its value.
func parses(t *testing.T, where, command string) {
	t.Helper()
	words := args(command)
	last := words[len(words)-1]
	isFlag := aFlag.MatchString(last)
	if isFlag {
		words = words[:len(words)-1]
	}
	r := start(t, words[0], append(words[1:], "--help")...).result(t, cliTimeout)
	if r.code != 0 {
		t.Errorf("%s: %s: exit code %d: %s", where, command, r.code, r.stderr)
	}
	if isFlag && !slices.Contains(strings.FieldsFunc(r.stdout, notOfFlag), last) {
		t.Errorf("%s: %s: there is no flag %s", where, command, last)
	}
}

var aFlag = regexp.MustCompile(`^--?[a-zA-Z]`)

// notOfFlag matches what ends a flag in a help text.
func notOfFlag(r rune) bool { return strings.ContainsRune(" ,\n", r) }

var (
	makeTarget = regexp.MustCompile(`(?m)^([a-z-]+):`)
	makeNamed  = regexp.MustCompile("(?m)(?:`|^)make ([a-z-]+)")
	link       = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchor   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns the names by which links refer to the headings of a document.
func anchors(t *testing.T, path string) map[string]bool {
	t.Helper()
	b := readFile(t, path)
	names := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fencedBlock.ReplaceAllString(string(b), ""), -1) {
		name := strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		for i, plain := 1, name; names[name]; i++ {
			name = fmt.Sprintf("%s-%d", plain, i)
		}
		names[name] = true
	}
	return names
}

// TestDocumentedNames: what the documents name exists: files and headings that they link to, targets of make, tests.
func TestDocumentedNames(t *testing.T) {
	makefile := readFile(t, "../Makefile")
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	tests := allTests(t)
	for _, path := range documents(t) {
		b := readFile(t, path)
		text := string(b)
		for _, m := range makeNamed.FindAllStringSubmatch(text, -1) {
			if !targets[m[1]] {
				t.Errorf("%s: make has no target %s", path, m[1])
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			name, _, _ := strings.Cut(m[1], "/")
			if testName.MatchString(name) && !tests[name] {
				t.Errorf("%s: there is no test %s", path, name)
			}
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to := path
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: link to %s: %v", path, m[1], err)
			} else if m[2] != "" && !anchors(t, to)[m[2]] {
				t.Errorf("%s: %s has no heading #%s", path, to, m[2])
			}
		}
	}
}

var testName = regexp.MustCompile(`^Test[A-Z]\w*$`)

// allTests are the names of all tests of the module.
func allTests(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range testNames.FindAllSubmatch(b, -1) {
			all[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The package comments of the largest rooms say which file to look in for what. They name all files that exist, and no
// others.
func TestDocumentedFiles(t *testing.T) {
	name := regexp.MustCompile(`\b[a-z_0-9]+\.go\b`)
	for _, room := range []string{
		"nvme/target", "nvme/host", "fabric/rdma/roce", "fabric/tcp", "cmd/nvmetgt", "cmd/nvmeinit", "blockdev", "persist", "internal/loadgen",
	} {
		doc := string(readFile(t, "../"+room+"/doc.go"))
		_, table, found := strings.Cut(doc, "# Where to change what")
		if !found {
			t.Errorf("%s/doc.go has no table of files", room)
		}
		inTable := append(name.FindAllString(table, -1), "doc.go")
		paths, err := filepath.Glob("../" + room + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for _, path := range paths {
			file := filepath.Base(path)
			there[file] = true
			if !strings.HasSuffix(file, "_test.go") && !slices.Contains(inTable, file) {
				t.Errorf("%s/doc.go doesn't say what %s is for", room, file)
			}
		}
		for _, file := range name.FindAllString(doc, -1) {
			if !there[file] {
				t.Errorf("%s/doc.go names %s, which isn't there", room, file)
			}
		}
	}
}
