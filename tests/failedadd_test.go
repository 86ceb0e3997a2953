package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// A change that fails because the saved state of a subsystem can't be read changes nothing, and succeeds once that is
// repaired.
func TestFailedAdd(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), freeAddr(t)
	c := &configured{file: filepath.Join(dir, "target.yaml"), socket: filepath.Join(dir, "control")}
	state := filepath.Join(dir, "state")
	disk := fmt.Sprintf("listen: [tcp://%s:4420]\ncontrol: %s\nstate: %s\nsubsystems:\n- nqn: %s\n  namespaces:\n  - {nsid: 1, volume: \"mem:1MiB\"}\n",
		addr, c.socket, state, diskNQN)
	both := disk + fmt.Sprintf("- nqn: %s\n  namespaces:\n  - {nsid: 5, volume: \"%s\", size: 8MiB}\n", otherNQN, filepath.Join(dir, "other.img"))
	more := strings.Replace(both, "subsystems:\n", "subsystems:\n- nqn: nqn.2026-11.io.nvme-anywhere:first\n  namespaces:\n  - {nsid: 1, volume: \"mem:1MiB\"}\n", 1)
	writeText(t, c.file, both)
	c.targetProgram = startServe(t, addr, "--config", c.file)
	c.change(t, "remove-subsystem", "-n", otherNQN)

	saved, err := filepath.Glob(filepath.Join(state, "events-*.state"))
	if err != nil || len(saved) != 2 {
		t.Fatalf("%v, %v", saved, err)
	}
	for i, name := range saved {
		saved[i] = filepath.Join(state, strings.Replace(filepath.Base(name), "events-", "sanitize-", 1))
		writeText(t, saved[i], "{")
	}
	writeText(t, c.file, more)
	if r := c.ctl(t, "reload"); r.code == 0 || !strings.Contains(r.stderr, "saved state can't be used: sanitize-") {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	for _, s := range c.status(t).Subsystems {
		if s.NQN != diskNQN && s.NQN != nvme.DiscoveryNQN {
			t.Errorf("after a failure there is %s", s.NQN)
		}
	}
	if out := c.change(t, "config"); strings.Contains(out, otherNQN) || strings.Contains(out, ":first") {
		t.Errorf("after a failure the configuration is\n%s", out)
	}
	for _, name := range saved {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	c.change(t, "reload")
	c.must(t, cliTimeout, "tcp", "id-ns", "-n", otherNQN, "--nsid", "5")
	c.change(t, "remove-namespace", "-n", otherNQN, "--nsid", "5")
}
