package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What `go test -json` prints for a package that passes, one that fails, one that skips and one that doesn't build.
const events = `{"Action":"start","Package":"example.org/nvmeof/good"}
{"Action":"run","Package":"example.org/nvmeof/good","Test":"TestGood"}
{"Action":"output","Package":"example.org/nvmeof/good","Test":"TestGood","Output":"noise\n"}
{"Action":"pass","Package":"example.org/nvmeof/good","Test":"TestGood","Elapsed":0.5}
{"Action":"output","Package":"example.org/nvmeof/good","Output":"ok  \n"}
{"Action":"pass","Package":"example.org/nvmeof/good","Elapsed":1.5}
{"Action":"output","Package":"example.org/nvmeof/part","Test":"TestPart","Output":"=== RUN   TestPart\n"}
{"Action":"output","Package":"example.org/nvmeof/part","Test":"TestPart","Output":"    part_test.go:12: no such thing here: sorry\n"}
{"Action":"output","Package":"example.org/nvmeof/part","Test":"TestPart","Output":"--- SKIP: TestPart (0.00s)\n"}
{"Action":"skip","Package":"example.org/nvmeof/part","Test":"TestPart","Elapsed":0}
{"Action":"pass","Package":"example.org/nvmeof/part","Elapsed":0.1}
{"Action":"output","Package":"example.org/nvmeof/bad","Test":"TestBad","Output":"    bad_test.go:9: got 1, want 2\n"}
{"Action":"fail","Package":"example.org/nvmeof/bad","Test":"TestBad","Elapsed":0}
{"Action":"output","Package":"example.org/nvmeof/bad","Output":"FAIL\n"}
{"Action":"fail","Package":"example.org/nvmeof/bad","Elapsed":0.2}
{"ImportPath":"example.org/nvmeof/broken","Action":"build-output","Output":"broken.go:3:1: syntax error\n"}
{"ImportPath":"example.org/nvmeof/broken","Action":"build-fail"}
{"Action":"fail","Package":"example.org/nvmeof/broken","Elapsed":0,"FailedBuild":"example.org/nvmeof/broken"}
go: no such tool
`

func TestReport(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"good", "1.5 s", "got 1, want 2", "bad", "FAILED", "syntax error", "go: no such tool"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it doesn't say %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "noise") {
		t.Errorf("it shows what passed:\n%s", out.String())
	}
	if !r.failed {
		t.Error("nothing failed")
	}
	path := filepath.Join(t.TempDir(), "skipped")
	if err := r.appendSkipped(path); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "part TestPart: no such thing here: sorry\n" {
		t.Errorf("skipped: %q", b)
	}
}

// A crash ends a package in the middle of a test, for which no end is reported.
func TestCrash(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	const crash = `{"Action":"output","Package":"m/nvmeof/p","Test":"TestX","Output":"panic: boom\n"}
{"Action":"output","Package":"m/nvmeof/p","Output":"FAIL\n"}
{"Action":"fail","Package":"m/nvmeof/p","Elapsed":2}
`
	if err := r.read(strings.NewReader(crash)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "panic: boom") {
		t.Errorf("it doesn't show the crash:\n%s", out.String())
	}
}

// A data race of what a test left behind is reported in the output of a test that passes.
func TestRace(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	const race = `{"Action":"output","Package":"m/nvmeof/p","Test":"TestX","Output":"WARNING: DATA RACE\n"}
{"Action":"output","Package":"m/nvmeof/p","Test":"TestX","Output":"Write at 0x1\n"}
{"Action":"pass","Package":"m/nvmeof/p","Test":"TestX","Elapsed":0}
{"Action":"output","Package":"m/nvmeof/p","Output":"FAIL\n"}
{"Action":"fail","Package":"m/nvmeof/p","Elapsed":2}
`
	if err := r.read(strings.NewReader(race)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "Write at 0x1") {
		t.Errorf("it doesn't show the race:\n%s", out.String())
	}
}
