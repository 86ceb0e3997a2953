package process

import (
	"os/exec"
	"strings"
	"testing"
)

// TestOutput: what a program says is no part of its output, and the reason why it failed.
func TestOutput(t *testing.T) {
	if out, err := Output(exec.Command("sh", "-c", "echo figures; echo by the way >&2")); err != nil || string(out) != "figures\n" {
		t.Errorf("%q, %v", out, err)
	}
	_, err := Output(exec.Command("sh", "-c", "echo no such volume >&2; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "exit status 3\nno such volume") {
		t.Error(err)
	}
}
