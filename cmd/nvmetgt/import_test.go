package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// fullOutput is an output on which every write fails.
type fullOutput struct{}

func (fullOutput) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestImportTwice: an import whose output can't be written leaves no file of secrets behind, which would prevent
// another attempt.
func TestImportTwice(t *testing.T) {
	dir := t.TempDir()
	linux, secrets := filepath.Join(dir, "nvmetcli.json"), filepath.Join(dir, "secrets")
	if err := os.WriteFile(linux, []byte(`{"hosts": [{"nqn": "nqn.2026-11.org.example:a",
		"dhchap_key": "DHHC-1:01:Klyt2lDFBqajDAj6PuPkC5GkAPvTN6hKSspehqtPL5Ihp/yN:"}],
		"subsystems": [{"nqn": "nqn.2026-11.org.example:s", "attr": {"allow_any_host": "1"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	try := func(out io.Writer) (code int, said string) {
		var stderr strings.Builder
		root := newRoot()
		root.SetArgs([]string{"import", linux, "--secrets", secrets})
		root.SetOut(out)
		return cli.Execute(t.Context(), root, &stderr), stderr.String()
	}
	if code, said := try(fullOutput{}); code != cli.ExitFailure || !strings.Contains(said, "no space left") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if _, err := os.Stat(secrets); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the secrets: %v", err)
	}
	if code, said := try(&strings.Builder{}); code != cli.ExitOK {
		t.Errorf("another try: exit code %d: %s", code, said)
	}
	if _, err := os.Stat(secrets); err != nil {
		t.Error(err)
	}
}
