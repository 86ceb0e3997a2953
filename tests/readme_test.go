package tests

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const readme = "../README.md"

// codeBlocks returns the fenced blocks of the README in a language, in order.
func codeBlocks(t *testing.T, language string) []string {
	t.Helper()
	b := readFile(t, readme)
	var blocks []string
	for rest := string(b); ; {
		_, after, ok := strings.Cut(rest, "\n```"+language+"\n")
		if !ok {
			break
		}
		block, after, ok := strings.Cut(after, "\n```\n")
		if !ok {
			t.Fatalf("%s: a block isn't closed", readme)
		}
		blocks, rest = append(blocks, block+"\n"), "\n"+after
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no block in %s", readme, language)
	}
	return blocks
}

// The Go programs in the README are those in examples, which are compiled with everything else.
func TestReadmePrograms(t *testing.T) {
	var all string
	for _, path := range []string{"../examples/target/main.go", "../examples/initiator/main.go"} {
		b := readFile(t, path)
		all += string(b)
	}
	for _, block := range codeBlocks(t, "go") {
		if !strings.Contains(all, block) {
			t.Errorf("%s shows a program that isn't in examples:\n%s", readme, block)
		}
	}
}

// The commands of the README's tour do what it says, in its order.
func TestReadmeTour(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := freeAddr(t)
	if err := buildPrograms(); err != nil {
		t.Fatal(err)
	}
	ran, out := 0, ""
	for _, block := range codeBlocks(t, "console") {
		for line := range strings.Lines(block) {
			command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ ")
			if !ok {
				if strings.Contains(line, " records, generation ") && !strings.HasPrefix(out, line) {
					t.Errorf("%s shows %q of what is\n%s", readme, line, out)
				}
				continue
			}
			command = strings.ReplaceAll(command, "127.0.0.1", at.String())
			if serve, ok := strings.CutPrefix(command, "nvmetgt serve "); ok {
				flags := args(strings.ReplaceAll(serve, "disk.img", filepath.Join(dir, "disk.img")))
				tgt := startTargetAt(t, at, flags...)
				t.Cleanup(func() { tgt.stop(t) })
				continue
			}
			out = shell(t, dir, command)
			ran++
		}
	}
	if ran < 10 {
		t.Errorf("the tour has %d commands", ran)
	}
}

// shell runs a command with the programs in its path, and returns its output.
func shell(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+binDir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("$ %s: %v\n%s", command, err, out)
	}
	return string(out)
}

// The example programs find each other, and the host reads what it wrote. None ignores an argument, and with it perhaps
// the address that was meant.
func TestExamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", module+"/examples/...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	addr := freeAddr(t).String() + ":" + nvmePort
	ctx, cancel := context.WithTimeout(t.Context(), cliTimeout)
	defer cancel()
	for line, want := range map[string]string{
		"target 127.0.0.1": "want the address as -addr", "initiator 127.0.0.1": "want the address as -addr",
		"rping 127.0.0.1 127.0.0.2": "one server", "rcpingpong 127.0.0.1 127.0.0.2": "one server", "perftest send 127.0.0.1 127.0.0.2": "one server",
	} {
		out, err := exec.CommandContext(ctx, dir+"/"+args(line)[0], args(line)[1:]...).CombinedOutput()
		if err == nil || ctx.Err() != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s ended with %v, says %q, want %q", line, err, out, want)
		}
	}
	target := exec.Command(dir+"/target", "-addr", addr)
	stderr, err := target.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := begin(starting, target); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	line, err := lines.ReadString('\n')
	if !strings.Contains(line, "ready") {
		t.Errorf("the target says %q, %v", line, err)
	}
	out, err := exec.Command(dir+"/initiator", "-addr", addr).CombinedOutput()
	if err != nil || string(out) != "hello over RDMA, of 67108864 bytes\n" {
		t.Errorf("the initiator says %q, %v", out, err)
	}
	_ = target.Process.Signal(os.Interrupt)
	rest, _ := io.ReadAll(lines)
	if err := target.Wait(); err != nil {
		t.Errorf("the target ended with %v: %s", err, rest)
	}
}
