package tests

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestRanges: a range that is discarded, or filled with zeroes, reads as zeroes and its surroundings stay; discarding
// frees the space.
func TestRanges(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, transport := range transports {
		for _, verb := range []string{"discard", "write-zeroes"} {
			dir := t.TempDir()
			tgt := startTarget(t, "--volume", dir+"/disk.img", "--size", "8MiB")
			data := bytes.Repeat([]byte("range"), 8*mib/5+1)[:8*mib]
			writeFile(t, dir+"/data", data)
			tgt.must(t, cliTimeout, transport, "write", "--input", dir+"/data", "--quiet")
			before := allocated(t, dir+"/disk.img")
			if out := tgt.must(t, cliTimeout, transport, verb, "--offset", "2MiB", "--length", "4MiB"); out != "" {
				t.Errorf("%s: %s says %q", transport, verb, out)
			}
			clear(data[2*mib : 6*mib])
			if out := tgt.must(t, cliTimeout, transport, "read", "--quiet"); out != string(data) {
				t.Errorf("%s: after %s the namespace holds something else", transport, verb)
			}
			if after := allocated(t, dir+"/disk.img"); verb == "discard" && before-after < 3*mib { // the file system's own data takes some
				t.Errorf("%s: the file has %d bytes on disk, and had %d", transport, after, before)
			}
			r := tgt.run(t, cliTimeout, transport, verb, "--offset", "6MiB", "--length", "4MiB")
			if r.code != exitUsage || !strings.Contains(r.stderr, "beyond the namespace's end at 8.0 MiB") {
				t.Errorf("%s: exit code %d, %q", transport, r.code, r.stderr)
			}
			tgt.stop(t)
		}
	}
}

// TestRangesInside: what the target does with ranges by itself: it compares one with a file, copies one, marks one as
// uncorrectable and checks one; and what fails says in which block.
func TestRangesInside(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, transport := range transports {
		tgt := startTarget(t, "--volume", "mem:16MiB", "--block-size", "512")
		fails := func(code int, says, verb string, args ...string) {
			t.Helper()
			r := tgt.run(t, cliTimeout, transport, verb, args...)
			if r.code != code || !strings.Contains(r.stderr, says) || r.stdout != "" {
				t.Errorf("%s: %s %v: exit code %d, %q, want %d, %q", transport, verb, args, r.code, r.stderr, code, says)
			}
		}
		succeeds := func(verb string, args ...string) {
			t.Helper()
			if out := tgt.must(t, cliTimeout, transport, verb, args...); out != "" {
				t.Errorf("%s: %s %v says %q", transport, verb, args, out)
			}
		}
		file := t.TempDir() + "/data"
		data := bytes.Repeat([]byte("range"), 4*mib/5+1)[:4*mib]
		save := func() {
			writeFile(t, file, data)
		}
		save()
		succeeds("write", "--offset", "1MiB", "--input", file, "--quiet")
		succeeds("copy", "--offset", "1MiB", "--length", "4MiB", "--to", "9MiB")
		fails(0, "compared 4.0 MiB in", "compare", "--offset", "9MiB", "--input", file)
		succeeds("compare", "--offset", "9MiB", "--length", "1MiB", "--input", file, "--quiet")

		succeeds("write", "--offset", "15MiB", "--length", "512", "--input", file, "--quiet")
		if out := tgt.must(t, cliTimeout, transport, "read", "--offset", "15MiB", "--length", "1KiB", "--quiet"); out != string(data[:512])+string(make([]byte, 512)) {
			t.Errorf("%s: of a longer file more than --length was written: %q", transport, out)
		}

		data[3*mib+700] ^= 1 // block 1 of 3 MiB
		data[3*mib+5000] ^= 1
		save()
		const block = (9+3)*mib/512 + 1
		fails(exitFailure, fmt.Sprintf("differs from --input in block %d, at offset %d", block, block*512), "compare", "--offset", "9MiB", "--input", file)
		fails(exitUsage, "compare a part of it with --length", "compare", "--offset", "13MiB", "--input", file)

		succeeds("verify", "--offset", "0", "--length", "16MiB")
		succeeds("write-uncor", "--offset", "2MiB", "--length", "1KiB")
		fails(exitFailure, "unrecovered read error (do not retry); the first is block 4096", "verify", "--offset", "0", "--length", "16MiB")
		fails(exitFailure, "unrecovered read error (do not retry); the first is block 4096", "copy", "--offset", "1MiB", "--length", "4MiB", "--to", "9MiB")
		fails(exitFailure, "unrecovered read error (do not retry); the first is block 4096", "read", "--offset", "1MiB", "--length", "8MiB")
		succeeds("verify", "--offset", "2049KiB", "--length", "1MiB")
		succeeds("write-zeroes", "--offset", "2MiB", "--length", "1KiB")
		succeeds("verify", "--offset", "0", "--length", "16MiB")

		fails(exitUsage, "overlap", "copy", "--offset", "0", "--length", "4MiB", "--to", "3MiB")
		fails(exitUsage, "--to 15 MiB on reach beyond the namespace's end at 16 MiB", "copy", "--offset", "0", "--length", "4MiB", "--to", "15MiB")
		tgt.stop(t)
	}
}

// TestWritesKept: what a command writes is durable when it ends, or the command fails; with --verify it fails also where
// the namespace forgets what was written.
func TestWritesKept(t *testing.T) {
	t.Parallel()
	in := t.TempDir() + "/in"
	writeFile(t, in, bytes.Repeat([]byte("kept"), 1024))
	const unflushed, forgetful = "1", "2"
	tgt := startTarget(t, "--volume", "fail:flush%100:mem:1MiB", "--volume", "null:1MiB")
	for _, c := range []struct {
		line, nsid string
		code       int
		says       string
	}{
		{"write --input " + in, unflushed, exitFailure, "Flush on namespace 1"},
		{"write-zeroes --offset 0 --length 4096", unflushed, exitFailure, "Flush on namespace 1"},
		{"copy --offset 0 --length 4096 --to 8192", unflushed, exitFailure, "Flush on namespace 1"},
		{"write --input " + in, forgetful, 0, "wrote 4.0 KiB"},
		{"write --verify --input " + in, forgetful, exitFailure, "verify: 4.0 KiB at offset 0 B read back differ"},
	} {
		verb, flags, _ := strings.Cut(c.line, " ")
		for _, transport := range transports {
			r := tgt.run(t, cliTimeout, transport, verb, append(args(flags), "--nsid", c.nsid)...)
			if r.code != c.code || !strings.Contains(r.stderr, c.says) {
				t.Errorf("%s: %s of namespace %s: exit code %d, %q, want %d, %q", transport, c.line, c.nsid, r.code, r.stderr, c.code, c.says)
			}
		}
	}
	tgt.stop(t)
}

// allocated returns the space that a file takes.
func allocated(t *testing.T, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}
