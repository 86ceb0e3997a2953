package main

import (
	"errors"
	"strings"
	"testing"

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
