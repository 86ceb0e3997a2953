package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const run1 = `not an event
{"Action":"run","Test":"TestLinux"}
{"Action":"run","Test":"TestLinux/6.12/9000"}
{"Action":"run","Test":"TestLinux/6.12/9000/target/rdma"}
{"Action":"output","Test":"TestLinux/6.12/9000/target/rdma","Output":"said\n"}
{"Action":"attr","Test":"TestLinux/6.12/9000/target/rdma","Key":"it-printed","Value":"one | two"}
{"Action":"pass","Test":"TestLinux/6.12/9000/target/rdma"}
{"Action":"run","Test":"TestLinux/6.12/9000/target/tcp"}
{"Action":"attr","Test":"TestLinux/6.12/9000/target/tcp","Key":"it-printed","Value":"one | two"}
{"Action":"pass","Test":"TestLinux/6.12/9000/target/tcp"}
{"Action":"pass","Test":"TestLinux/6.12/9000"}
{"Action":"run","Test":"TestLinux/6.1/1500/target/tcp"}
{"Action":"output","Test":"TestLinux/6.1/1500/target/tcp","Output":"    a_test.go:5: no TCP\n"}
{"Action":"skip","Test":"TestLinux/6.1/1500/target/tcp"}
{"Action":"run","Test":"TestLinux/6.1/1500/new"}
{"Action":"fail","Test":"TestLinux/6.1/1500/new"}
{"Action":"fail","Test":"TestLinux"}
{"Action":"attr","Test":"TestLinux/6.1/1500/new","Key":"figures","Value":"load\ta second | 4k\t7"}
{"Action":"run","Test":"TestOther"}
{"Action":"run","Test":"TestOther/6.12"}
{"Action":"fail"}
`

const page1 = `### NVMe over Fabrics

| | | 6.1, MTU 1500 | 6.12, MTU 9000 |
|---|---|---|---|
| nvmeinit uses Linux's target | discover, connect, identify, write, read, verify, bench, refusals | TCP skipped | RDMA, TCP |
|  | new | **failed** |  |

#### nvmeinit uses Linux's target: discover, connect, identify, write, read, verify, bench, refusals: it printed

6.12, MTU 9000 RDMA; 6.12, MTU 9000 TCP:

    one
    two


#### nvmeinit uses Linux's target: discover, connect, identify, write, read, verify, bench, refusals: skipped

- 6.1, MTU 1500 TCP: no TCP

#### new: figures

6.1, MTU 1500:

| load | a second |
|---|---|
| 4k | 7 |


### TestOther

| | | 6.12 |
|---|---|---|
| all of it | together | **didn't end** |
`

// judged returns the verdict on a run that writes events.
func judged(events string, out io.Writer, page string) error {
	r := newResults()
	if err := r.addAll(strings.NewReader(events), out); err != nil {
		return err
	}
	return r.judge(page)
}

// TestEmulatorFault: what failed because of its machine counts with its second result.
func TestEmulatorFault(t *testing.T) {
	script := func(second string) []string {
		return []string{"sh", "-c", `
case "$2" in
"") cat <<'.'
{"Action":"run","Test":"TestLinux"}
{"Action":"run","Test":"TestLinux/6.1/1500"}
{"Action":"run","Test":"TestLinux/6.1/1500/host"}
{"Action":"fail","Test":"TestLinux/6.1/1500/host"}
{"Action":"attr","Test":"TestLinux/6.1/1500","Key":"emulator-fault","Value":"flags"}
{"Action":"fail","Test":"TestLinux/6.1/1500"}
{"Action":"fail","Test":"TestLinux"}
{"Action":"fail"}
.
;;
'^TestLinux$/^6\.1$/^1500$') cat <<'.'
{"Action":"run","Test":"TestLinux"}
{"Action":"run","Test":"TestLinux/6.1/1500"}
{"Action":"` + second + `","Test":"TestLinux/6.1/1500"}
{"Action":"` + second + `","Test":"TestLinux"}
{"Action":"` + second + `"}
.
esac`, "sh"}
	}
	if err := run(script("pass"), io.Discard, ""); err != nil {
		t.Errorf("it passed the second time: %v", err)
	}
	if err := run(script("fail"), io.Discard, ""); !errors.Is(err, errFailed) {
		t.Errorf("it failed again: %v", err)
	}
}

func TestPage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("# Head\n"+begin+"old\n"+end+"tail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := judged(run1, &out, page); !errors.Is(err, errFailed) {
		t.Errorf("a run with a failure: %v", err)
	}
	if out.String() != "not an event\nsaid\n    a_test.go:5: no TCP\n" {
		t.Errorf("passed on: %q", out.String())
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if want := "# Head\n" + begin + "\n" + page1 + "\n" + end + "tail\n"; string(got) != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestCutOff: a run that was killed has not passed.
func TestCutOff(t *testing.T) {
	for _, in := range []string{"", `{"Action":"pass"}`, `{"Action":"run","Test":"TestLinux"}`} {
		if err := judged(in, &strings.Builder{}, ""); err == nil {
			t.Errorf("%q passed", in)
		}
	}
}

func TestPageWithoutMarkers(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("# Head\n"+end+begin), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := judged(run1, &strings.Builder{}, page); err == nil || errors.Is(err, errFailed) {
		t.Error("a page without markers was rewritten")
	}
}
