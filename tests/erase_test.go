package tests

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestErase: after format a namespace holds zeroes, and the other one what it held; after sanitize has ended both hold
// the pattern.
func TestErase(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	data := filepath.Join(t.TempDir(), "data")
	written := bytes.Repeat([]byte("left"), size/4)
	writeFile(t, data, written)
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			tgt := startTarget(t, "--volume", "mem:4MiB", "--volume", filepath.Join(t.TempDir(), "disk"), "--size", "4MiB")
			silent := func(verb, flags string) {
				t.Helper()
				if out := tgt.must(t, cliTimeout, transport, verb, args(flags)...); out != "" {
					t.Errorf("%s says %q", verb, out)
				}
			}
			holds := func(nsid, what string, want []byte) {
				t.Helper()
				if out := tgt.must(t, cliTimeout, transport, "read", "--quiet", "--nsid", nsid); out != string(want) {
					t.Errorf("namespace %s doesn't hold %s", nsid, what)
				}
			}
			for _, nsid := range []string{"1", "2"} {
				silent("write", "--quiet --input "+data+" --nsid "+nsid)
			}
			silent("format", "--nsid 2")
			holds("1", "what was written", written)
			holds("2", "zeroes", make([]byte, size))
			more := map[string]struct {
				flag string
				bit  int
			}{"rdma": {" --ause", 1 << 3}, "tcp": {" --no-dealloc", 1 << 9}}[transport]
			silent("sanitize", "--sanact 3 --ovrpat 0x0f5a0f5a --owpass 2 --oipbp"+more.flag)
			eventually(t, cliTimeout, "it is sanitized", func() bool {
				return strings.Contains(tgt.must(t, cliTimeout, transport, "sanitize-log"), "completed\n")
			})
			asked := fmt.Sprintf(`"cdw10_info": %d,`, 1<<8|2<<4|3|more.bit) // the command's dword 10
			if log := tgt.must(t, cliTimeout, transport, "sanitize-log", "-o", "json"); !strings.Contains(log, asked) {
				t.Errorf("the log doesn't have %s:\n%s", asked, log)
			}
			for _, nsid := range []string{"1", "2"} { // the last pass is the pattern itself, in little-endian order
				holds(nsid, "the pattern", bytes.Repeat([]byte{0x5a, 0x0f, 0x5a, 0x0f}, size/4))
			}
			tgt.stop(t)
		})
	}
}

// TestEraseMistakes: what can't be formatted or sanitized is refused, and nothing is sent that leaves open what is to
// be erased, or how.
func TestEraseMistakes(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:4MiB")
	for _, m := range []mistake{
		{args("format"), exitUsage, []string{"no --nsid given"}},
		{args("format --nsid 1 --ses 3"), exitUsage, []string{"--ses 3", "0 to 2"}},
		{args("format --nsid 1 --lbaf 64"), exitUsage, []string{"--lbaf 64", "0 to 63"}},
		{args("format --nsid 7"), exitFailure, []string{"Format NVM on namespace 7", "invalid namespace"}},
		{args("format --nsid 1 --lbaf 63"), exitFailure, []string{"invalid format", "id-ns --nsid 1"}},
		{args("sanitize"), exitUsage, []string{"no --sanact given"}},
		{args("sanitize --sanact 5"), exitUsage, []string{"--sanact 5", "1 to 4"}},
		{args("sanitize --sanact 3 --owpass 17"), exitUsage, []string{"--owpass 17", "1 to 16"}},
		{args("sanitize --sanact 2 --ovrpat 1"), exitUsage, []string{"--ovrpat", "--sanact 3"}},
		{args("sanitize --sanact 4"), exitFailure, []string{"Sanitize", "invalid field"}},
	} {
		checkLine(t, tgt.run(t, cliTimeout, "tcp", m.args[0], m.args[1:]...), "nvmeinit", m)
	}
	tgt.stop(t)
}
