package main

import (
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestRemoveNamespace: which namespaces the operator can remove, and why not others.
func TestRemoveNamespace(t *testing.T) {
	for _, c := range []struct {
		nsid   uint32
		create *config.Create
		says   string
	}{
		{2, nil, ""},
		{2, &config.Create{}, ""},
		{0, nil, "say which"},
		{3, nil, "no such namespace"},
		{target.FirstCreatedNSID, nil, "no such namespace"},
		{target.FirstCreatedNSID, &config.Create{}, "nvmeinit delete-ns"}, // ctl show lists those of hosts, too
	} {
		s := config.Subsystem{Namespaces: []config.Namespace{{NSID: 1}, {NSID: 2}}, Create: c.create}
		switch err := removeNamespace(&s, c.nsid); {
		case c.says == "" && (err != nil || len(s.Namespaces) != 1 || s.Namespaces[0].NSID != 1):
			t.Errorf("%d: %v, %v", c.nsid, err, s.Namespaces)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || len(s.Namespaces) != 2):
			t.Errorf("%d: %v, %v", c.nsid, err, s.Namespaces)
		}
	}
}
