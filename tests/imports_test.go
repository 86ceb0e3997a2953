package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nvme-anywhere/nvmeof"

// room is a directory in the table of ARCHITECTURE.md.
type room struct {
	dir string   // of the package, and of those below it that have no room of their own
	may []string // what it may import of ours: a directory, or one and all below it with /...
}

const everything = "..."

// testsOfAllMay says what the tests of all rooms may import in addition.
var testsOfAllMay = []string{"internal/fuzzing", "internal/race", "internal/soon"}

// testsMay says what the tests of a room may import in addition.
var testsMay = map[string][]string{
	"nvme/target":           {"blockdev/..."},
	"nvme/multipath":        {"nvme/dhchap", "nvme/target", "blockdev/...", "fabric/tcp"},
	"fabric/rdma/verbs":     {"fabric/rdma/softrnic"},
	"fabric/rdma/roce/wire": {"internal/..."},
	"fabric/rdma/roce":      {"internal/..."},
	"fabric/rdma/cm":        {"fabric/rdma/roce", "internal/..."},
	"fabric/rdma/fault":     {everything},
	"fabric/rdma/softrnic":  {"fabric/rdma/verbs/..."},
	"fabric/rdma":           {everything},
	"fabric/tcp/pdu":        {"internal/samples"},
	"fabric/tcp":            {"blockdev/...", "statedir", "internal/..."},
	"blockdev":              {"blockdev/...", "internal/crash", "internal/disktest", "internal/hangtest", "internal/sandbox"},
	"blockdev/wrap":         {"blockdev/..."},
	"persist":               {"blockdev/...", "internal/crash", "internal/disktest", "internal/hangtest", "internal/sandbox"},
	"statedir":              {"internal/hangtest", "internal/sandbox"},
	"internal/udp":          {"internal/..."},
	"internal/aio":          {"internal/sandbox"},
	"internal/identity":     {"internal/sandbox"},
	"internal/capture":      {"internal/..."},
	"internal/cli":          {"internal/disktest", "internal/sandbox"},
	"internal/control":      {"internal/sandbox"},
	"internal/listen":       {"internal/sandbox"},
	"internal/loadgen":      {"internal/sandbox"},
	"examples":              {everything},
}

// readRooms reads the table, which names a directory by its last part if no other room ends like that.
func readRooms(t *testing.T) (rooms []room) {
	t.Helper()
	for line := range strings.Lines(roomsTable(t)) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 3 || !strings.HasPrefix(cells[0], "`") {
			continue
		}
		for dir := range strings.SplitSeq(cells[0], ", ") {
			r := room{dir: strings.TrimSuffix(strings.Trim(dir, "`"), "/…")}
			if cells[2] != "nothing" {
				r.may = strings.Split(cells[2], ", ")
			}
			rooms = append(rooms, r)
		}
	}
	for _, r := range rooms {
		for i, name := range r.may {
			r.may[i] = importable(t, rooms, name)
		}
	}
	return rooms
}

func roomsTable(t *testing.T) string {
	t.Helper()
	text := readFile(t, "../ARCHITECTURE.md")
	_, table, _ := strings.Cut(string(text), "\n## Rooms\n")
	table, _, _ = strings.Cut(table, "\n## ")
	return table
}

// importable returns what a word of the table's last column means.
func importable(t *testing.T, rooms []room, word string) string {
	t.Helper()
	if word == "all" {
		return everything
	}
	name, below := strings.CutSuffix(strings.Trim(word, "`"), "…")
	if _, err := os.Stat("../" + name); err != nil {
		i := slices.IndexFunc(rooms, func(r room) bool { return strings.HasSuffix(r.dir, "/"+name) })
		if i < 0 {
			t.Fatalf("ARCHITECTURE.md: a room may import %s, which isn't there", word)
		}
		name = rooms[i].dir
	}
	if below {
		name += "/..."
	}
	return name
}

// dependency is a third-party module that the project uses, or a package of the standard library that isn't for all.
type dependency struct {
	module string
	may    []string // our directories that import it
}

// inTests stands for the tests of every room.
const inTests = "_test.go"

// dependencies are all modules that any of our packages imports.
var dependencies = []dependency{
	{"github.com/coreos/go-systemd/v22", []string{"cmd/nvmetgt"}},
	{"github.com/prometheus", []string{"metrics/..."}},
	{"github.com/spf13/cobra", []string{"cmd/...", "internal/cli/..."}},
	{"github.com/spf13/pflag", []string{"cmd/...", "internal/cli/..."}},
	{"github.com/jedib0t/go-pretty/v6", []string{"cmd/...", "internal/cli", "tests/..."}},
	{"github.com/ncw/directio", []string{"blockdev/...", inTests}},
	{"github.com/gopacket/gopacket", []string{"internal/capture", "internal/samples", inTests}},
	{"go.uber.org/goleak", []string{inTests}},
	{"github.com/goccy/go-yaml", []string{"internal/config"}},
	{"github.com/agnivade/levenshtein", []string{"internal/cli"}},
	{"github.com/dustin/go-humanize", []string{everything}},
	{"github.com/google/uuid", []string{everything}},
	{"filippo.io/bigmod", []string{"nvme/dhchap"}},
	{"golang.org/x/net/bpf", []string{"internal/udp", "fabric/rdma/softrnic"}},
	{"golang.org/x/sys", []string{everything}},
	{"testing", []string{"blockdev/volumetest", "examples/internal/rctest", "fabric/rdma/verbs/verbstest", "internal/cli/clitest", "internal/disktest", "internal/fabrictest", "internal/fuzzing", "internal/hangtest", "internal/samples", "internal/sandbox", inTests}},
}

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath   string
	CgoFiles     []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// Imports point one way: a room imports only those that the table names.
func TestImportDirections(t *testing.T) {
	rooms := readRooms(t)
	for _, arch := range []string{"amd64", "arm64"} {
		for _, p := range goList(t, arch) {
			dir := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
			r := roomOf(rooms, dir)
			if r == nil {
				t.Errorf("%s has no room: say what it may import in the table of ARCHITECTURE.md", dir)
				continue
			}
			if len(p.CgoFiles) > 0 {
				t.Errorf("%s uses cgo (%s): the programs are static Go", dir, strings.Join(p.CgoFiles, ", "))
			}
			r.check(t, dir, p.Imports, false)
			r.check(t, dir, slices.Concat(p.TestImports, p.XTestImports), true)
		}
	}
}

func goList(t *testing.T, arch string) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,CgoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &stderr)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v: %v", cmd, err)
		}
		all = append(all, p)
	}
}

// ARCHITECTURE.md lists each room once, and only directories that there are.
func TestRoomsListed(t *testing.T) {
	listed := map[string]bool{}
	for _, r := range readRooms(t) {
		if listed[r.dir] {
			t.Errorf("ARCHITECTURE.md lists %s twice", r.dir)
		}
		if _, err := os.Stat("../" + r.dir); err != nil {
			t.Errorf("ARCHITECTURE.md lists %s: %v", r.dir, err)
		}
		listed[r.dir] = true
	}
	table := roomsTable(t)
	for _, p := range goList(t, "amd64") { // in its own row, or named in that of tests
		dir := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(dir, "tests/") && !strings.Contains(table, "`"+dir+"`") && !strings.Contains(table, "`"+path.Base(dir)+"`") {
			t.Errorf("ARCHITECTURE.md doesn't name %s", dir)
		}
	}
}

// roomOf returns the room of the nearest directory at or above dir.
func roomOf(rooms []room, dir string) *room {
	for ; dir != "." && dir != "/"; dir = path.Dir(dir) {
		for i := range rooms {
			if rooms[i].dir == dir {
				return &rooms[i]
			}
		}
	}
	return nil
}

func (r *room) check(t *testing.T, dir string, imports []string, test bool) {
	t.Helper()
	for _, imp := range imports {
		if why := r.forbids(dir, imp, test); why != "" {
			what := "code"
			if test {
				what = "tests"
			}
			t.Errorf("the %s of %s import %s: %s", what, dir, imp, why)
		}
	}
}

// forbids returns why imp is not allowed; empty if it is.
func (r *room) forbids(dir, imp string, test bool) string {
	if own, ok := strings.CutPrefix(imp, module+"/"); ok {
		may := r.may
		if test {
			may = slices.Concat(may, testsMay[r.dir], []string{dir}, testsOfAllMay)
		}
		if slices.ContainsFunc(may, func(pattern string) bool { return matches(pattern, own) }) {
			return ""
		}
		if len(may) == 0 {
			return "this room knows no other"
		}
		return fmt.Sprintf("of ours this room knows only %s", strings.Join(may, ", "))
	}
	for _, d := range dependencies {
		if imp != d.module && !strings.HasPrefix(imp, d.module+"/") {
			continue
		}
		if test && slices.Contains(d.may, inTests) ||
			slices.ContainsFunc(d.may, func(pattern string) bool { return matches(pattern, dir) }) {
			return ""
		}
		return fmt.Sprintf("only %s may", strings.Join(d.may, ", "))
	}
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	return "a new dependency: weigh it, then enter it in tests/imports_test.go"
}

// matches reports whether a directory is pattern, or, for dir/..., at or below it.
func matches(pattern, dir string) bool {
	if pattern == everything {
		return true
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return dir == base || strings.HasPrefix(dir, base+"/")
	}
	return dir == pattern
}

// The check itself works.
func TestImportRules(t *testing.T) {
	rooms := readRooms(t)
	for _, c := range []struct {
		dir, imp string
		test, ok bool
	}{
		{"nvme", "encoding/binary", false, true},
		{"nvme", module + "/blockdev", false, false},
		{"nvme", module + "/nvme", true, true},
		{"nvme", "golang.org/x/sys/unix", false, true},
		{"nvme", "example.org/new", false, false},
		{"nvme", "github.com/spf13/cobra", false, false},
		{"nvme/host", module + "/nvme", false, true},
		{"nvme/host", module + "/nvme/target", false, false},
		{"nvme/target", module + "/fabric/tcp", false, false},
		{"fabric/rdma", module + "/nvme/target", false, true},
		{"fabric/rdma", module + "/fabric/rdma/roce", false, false},
		{"fabric/rdma", module + "/fabric/rdma/roce", true, true},
		{"fabric/rdma/cm", module + "/fabric/rdma/roce", false, false},
		{"fabric/rdma/cm", module + "/fabric/rdma/roce/wire", false, true},
		{"fabric/rdma/verbs", module + "/fabric/rdma/cm", false, false},
		{"blockdev/volumetest", module + "/blockdev", false, true},
		{"blockdev", module + "/persist", false, false},
		{"cmd/nvmetgt", module + "/fabric/rdma/softrnic", false, true},
		{"cmd/nvmetgt", "github.com/prometheus/client_golang/prometheus", false, false},
		{"metrics", "github.com/prometheus/client_golang/prometheus", false, true},
		{"blockdev", "go.uber.org/goleak", false, false},
		{"blockdev", "go.uber.org/goleak", true, true},
		{"blockdev", "testing", false, false},
		{"blockdev", "testing", true, true},
	} {
		why := roomOf(rooms, c.dir).forbids(c.dir, c.imp, c.test)
		if (why == "") != c.ok {
			t.Errorf("%s imports %s (test %v): %q", c.dir, c.imp, c.test, why)
		}
	}
	if roomOf(rooms, "elsewhere/deep") != nil {
		t.Error("a directory outside the table has a room")
	}
}
