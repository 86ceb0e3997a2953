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

// room says what the packages of a directory may import.
type room struct {
	dir   string   // of the package, and of those below it that have no room of their own
	may   []string // of ours: a directory, or one and all below it with /...
	tests []string // what its tests may import in addition
}

const everything = "..."

// rooms is the table of ARCHITECTURE.md.
var rooms = []room{
	{dir: "nvme"},
	{dir: "nvme/dhchap", may: []string{"nvme"}},
	{dir: "nvme/target", may: []string{"nvme", "nvme/dhchap", "blockdev", "internal/crowd", "internal/limitlog"}, tests: []string{"blockdev/..."}},
	{dir: "nvme/host", may: []string{"nvme", "nvme/dhchap", "internal/limitlog"}},
	{dir: "nvme/multipath", may: []string{"nvme", "nvme/host"}, tests: []string{"nvme/target", "blockdev/...", "fabric/tcp"}},
	{dir: "fabric/rdma/verbs", tests: []string{"fabric/rdma/softrnic"}},
	{dir: "fabric/rdma/roce/wire", may: []string{"internal/prefetch"}, tests: []string{"internal/..."}},
	{
		dir:   "fabric/rdma/roce",
		may:   []string{"fabric/rdma/verbs", "fabric/rdma/roce/wire", "internal/udp", "internal/mem", "internal/duty", "internal/stream"},
		tests: []string{"internal/..."},
	},
	{dir: "fabric/rdma/cm/mad", may: []string{"fabric/rdma/verbs"}},
	{
		dir:   "fabric/rdma/cm",
		may:   []string{"fabric/rdma/verbs", "fabric/rdma/roce/wire", "fabric/rdma/cm/mad", "internal/crowd", "internal/pqueue"},
		tests: []string{"fabric/rdma/roce", "internal/..."},
	},
	{dir: "fabric/rdma/fault", may: []string{"internal/udp", "internal/simnet", "internal/mem", "internal/pqueue"}, tests: []string{everything}},
	{
		dir: "fabric/rdma/softrnic",
		may: []string{"fabric/rdma/verbs", "fabric/rdma/roce", "fabric/rdma/cm", "fabric/rdma/fault", "internal/udp", "internal/capture"},
	},
	{
		dir:   "fabric/rdma", // the binding: it works with any provider, so it knows none
		may:   []string{"nvme/...", "blockdev", "fabric/rdma/verbs", "internal/crowd", "internal/inuse", "internal/mem", "internal/limitlog"},
		tests: []string{everything},
	},
	{dir: "fabric/tcp/pdu", may: []string{"nvme"}, tests: []string{"internal/fuzzing", "internal/samples"}},
	{
		dir:   "fabric/tcp",
		may:   []string{"nvme/...", "blockdev", "fabric/tcp/pdu", "internal/inuse", "internal/mem", "internal/busypoll", "internal/duty", "internal/limitlog", "internal/listen"},
		tests: []string{"blockdev/...", "statedir", "internal/..."},
	},
	{dir: "blockdev", may: []string{"internal/aio", "internal/duty", "internal/prefetch", "statedir"}, tests: []string{"blockdev/...", "internal/crash", "internal/sandbox"}},
	{dir: "blockdev/volumetest", may: []string{"blockdev"}},
	{dir: "blockdev/wrap", may: []string{"blockdev"}, tests: []string{"blockdev/..."}},
	{dir: "persist", may: []string{"blockdev", "internal/prefetch", "internal/stream"}, tests: []string{"blockdev/...", "internal/crash", "internal/sandbox"}},
	{dir: "statedir", tests: []string{"internal/sandbox"}},
	{dir: "metrics", may: []string{everything}},
	{dir: "internal/udp", may: []string{"internal/busypoll", "internal/duty", "internal/mem", "internal/neighbor", "internal/standstill"}, tests: []string{"internal/..."}},
	{dir: "internal/neighbor", may: []string{"internal/ring"}, tests: []string{"internal/soon"}},
	{dir: "internal/ring", may: []string{"internal/prefetch"}, tests: []string{"internal/fuzzing", "internal/soon"}},
	{dir: "internal/busypoll"},
	{dir: "internal/crowd", may: []string{"internal/pqueue"}},
	{dir: "internal/pqueue"},
	{dir: "internal/duty"},
	{dir: "internal/standstill"},
	{dir: "internal/aio", may: []string{"internal/standstill"}, tests: []string{"internal/sandbox"}},
	{dir: "internal/mem", may: []string{"internal/pqueue"}},
	{dir: "internal/prefetch"},
	{dir: "internal/stream"},
	{dir: "internal/limitlog"},
	{dir: "internal/inuse"},
	{dir: "internal/listen"},
	{dir: "internal/identity", may: []string{"nvme", "statedir"}},
	{dir: "internal/crash"},
	{dir: "internal/fuzzing"},
	{dir: "internal/soon"},
	{dir: "internal/samples"},
	{dir: "internal/sandbox"},
	{dir: "internal/simnet", may: []string{"internal/udp", "internal/pqueue"}},
	{dir: "internal/capture", may: []string{"internal/udp", "internal/mem", "fabric/rdma/roce/wire"}, tests: []string{"internal/..."}},
	{dir: "internal/loadgen", may: []string{"internal/standstill", "internal/pqueue"}},
	{dir: "internal/report", may: []string{"internal/loadgen"}},
	{dir: "internal/fio", may: []string{"blockdev", "internal/loadgen"}},
	{dir: "internal/cli", may: []string{"nvme", "nvme/dhchap", "blockdev", "statedir", "fabric/rdma/fault", "internal/busypoll"}},
	{dir: "internal/cli/clitest", may: []string{"internal/cli", "internal/soon"}},
	{dir: "internal/config", may: []string{"nvme", "nvme/dhchap", "nvme/target", "blockdev", "blockdev/wrap", "persist", "internal/cli"}},
	{dir: "internal/control", may: []string{"nvme/target", "internal/cli", "internal/config"}},
	{dir: "internal/version"},
	{dir: "cmd", may: []string{everything}},
	{dir: "examples", may: []string{"nvme/...", "blockdev", "persist", "fabric/...", "examples/internal/..."}, tests: []string{everything}}, // what users may import
	{dir: "tests", may: []string{everything}},
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
	{"golang.org/x/sys", []string{everything}},
	{"testing", []string{"blockdev/volumetest", "examples/internal/rctest", "internal/cli/clitest", "internal/fuzzing", "internal/samples", "internal/sandbox", inTests}},
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
	for _, arch := range []string{"amd64", "arm64"} {
		for _, p := range goList(t, arch) {
			dir := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
			r := roomOf(dir)
			if r == nil {
				t.Errorf("%s has no room: say what it may import in the table of %s", dir, "tests/imports_test.go")
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

// ARCHITECTURE.md lists each room once, and no other.
func TestRoomsListed(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Rooms\n")
	table, _, _ = strings.Cut(table, "\n## ")
	listed := map[string]int{}
	for line := range strings.Lines(table) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok {
			for name := range strings.SplitSeq(cell, ", ") {
				name = strings.TrimSuffix(strings.Trim(name, "`"), "/…")
				listed[name]++
			}
		}
	}
	for _, r := range rooms {
		if listed[r.dir] != 1 {
			t.Errorf("ARCHITECTURE.md lists %s %d times", r.dir, listed[r.dir])
		}
	}
	for _, p := range goList(t, "amd64") { // in its own row, or named in that of tests
		dir := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(dir, "tests/") && !strings.Contains(table, "`"+dir+"`") && !strings.Contains(table, "`"+path.Base(dir)+"`") {
			t.Errorf("ARCHITECTURE.md doesn't name %s", dir)
		}
	}
	for name := range listed {
		if _, err := os.Stat("../" + name); err != nil && name != "room" && !strings.HasPrefix(name, "---") {
			t.Errorf("ARCHITECTURE.md lists %s: %v", name, err)
		}
	}
}

// roomOf returns the room of the nearest directory at or above dir.
func roomOf(dir string) *room {
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
			may = slices.Concat(may, r.tests, []string{dir, "internal/fuzzing", "internal/soon"}) // every room has fuzz targets, and waits
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
		why := roomOf(c.dir).forbids(c.dir, c.imp, c.test)
		if (why == "") != c.ok {
			t.Errorf("%s imports %s (test %v): %q", c.dir, c.imp, c.test, why)
		}
	}
	if roomOf("elsewhere/deep") != nil {
		t.Error("a directory outside the table has a room")
	}
}
