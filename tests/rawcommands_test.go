package tests

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestRawCommands: commands made of numbers do the same as otherwise, and their results are shown byte by byte.
func TestRawCommands(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:4MiB")
	dir := t.TempDir()
	block := bytes.Repeat([]byte("raw block "), 410)[:4096]
	writeFile(t, dir+"/block", block)
	for i, transport := range transports {
		slba, offset := fmt.Sprint(i+1), fmt.Sprint((i+1)*len(block))
		run := func(verb, flags string) string {
			t.Helper()
			return tgt.must(t, cliTimeout, transport, verb, args(flags)...)
		}
		if out := run("io-passthru", "--opcode 0x01 --nsid 1 --cdw10 "+slba+" --data-len 4k --write --input-file "+dir+"/block"); out != "result: 0x00000000\n" {
			t.Errorf("%s: Write: %q", transport, out)
		}
		if out := run("io-passthru", "--opcode 0x02 --nsid 1 --cdw10 "+slba+" --data-len 4k --read -b"); out != string(block) {
			t.Errorf("%s: Read brought other data, %d bytes", transport, len(out))
		}
		if r := tgt.run(t, cliTimeout, transport, "read", "--offset", offset, "--length", "4k", "--quiet"); r.stdout != string(block) {
			t.Errorf("%s: it doesn't lie where it was written: %q", transport, r.stderr)
		}
		if out := run("io-passthru", "--opcode 0x00 --nsid 1"); out != "result: 0x00000000\n" {
			t.Errorf("%s: Flush: %q", transport, out)
		}
		// Get Features, Keep Alive Timer: 5 s.
		if out := run("admin-passthru", "--opcode 0x0a --cdw10 0x0f"); out != "result: 0x00001388\n" {
			t.Errorf("%s: Get Features: %q", transport, out)
		}
		shown := run("admin-passthru", "--opcode 0x06 --cdw10 1 --data-len 4096")
		if !strings.Contains(shown, "\n0020: 77 68 65 72 65 20 74 61 72 67 65 74 20 20 20 20 \"where target    \"\n") {
			t.Errorf("%s: Identify:\n%.600s", transport, shown)
		}
		header := run("get-log", "--log-id 0x70 --log-len 16 -b -n nqn.2014-08.org.nvmexpress.discovery")
		if len(header) != 16 || header[8] != 4 {
			t.Errorf("%s: Discovery log: % x, want 4 records", transport, header)
		}
		r := tgt.run(t, cliTimeout, transport, "io-passthru", args("--opcode 2 --nsid 1 --data-len 4k -n nqn.2014-08.org.nvmexpress.discovery")...)
		if r.code != exitUsage || !strings.Contains(r.stderr, "no I/O queue") {
			t.Errorf("%s: exit code %d, %q", transport, r.code, r.stderr)
		}
		r = tgt.run(t, cliTimeout, transport, "io-passthru", args("--opcode 1 --nsid 1 --data-len 8k --input-file "+dir+"/block")...)
		if r.code != exitUsage || !strings.Contains(r.stderr, "holds 4096 bytes, --data-len is 8192") {
			t.Errorf("%s: exit code %d, %q", transport, r.code, r.stderr)
		}
	}
}
