package main

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli/clitest"
)

// TestInterruptedReading: a command that waits for the content of a file, from a pipe or terminal, can be
// interrupted.
func TestInterruptedReading(t *testing.T) {
	clitest.IsInterrupted(t, newRoot, "check", "import", "serve --config", "ctl apply",
		"serve --volume mem:1MiB --listen "+freeEndpoint(t).String()+" --dhchap-secrets")
}
