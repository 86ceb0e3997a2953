package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestRemedied: who asks for a log that the controller hasn't got learns how to find those that it has; the status can
// still be told, and other errors stay as they are.
func TestRemedied(t *testing.T) {
	err := remedied(&nvme.StatusError{Status: nvme.StatusInvalidLogPage | nvme.StatusDNR, Command: "Get Log Page"})
	if !errors.Is(err, nvme.StatusInvalidLogPage) || !strings.Contains(err.Error(), "supported-log-pages shows which") {
		t.Errorf("%v", err)
	}
	if err := remedied(errors.New("other")); err.Error() != "other" || remedied(nil) != nil {
		t.Errorf("another error is changed to %v", err)
	}
}

// TestConnectAllHelp: the help of connect-all shows no flags that it refuses.
func TestConnectAllHelp(t *testing.T) {
	var help strings.Builder
	root := newRoot()
	root.SetOut(&help)
	root.SetArgs([]string{"connect-all", "--help"})
	if code := cli.Execute(t.Context(), root, &help); code != cli.ExitOK {
		t.Fatal(help.String())
	}
	for flag, shown := range map[string]bool{"--path": false, "--all-paths": false, "--iopolicy": true, "--ctrl-loss-tmo": true} {
		if strings.Contains(help.String(), flag+" ") != shown {
			t.Errorf("%s:\n%s", flag, help.String())
		}
	}
	if strings.Contains(help.String(), "any of these makes lost connections come back") {
		t.Error("only --hold does here")
	}
}
