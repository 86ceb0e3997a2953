package main

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
)

// TestMostEngines: the flag and the configuration allow as many engines as the RNIC has.
func TestMostEngines(t *testing.T) {
	if cli.MaxEngines != softrnic.MaxEngines {
		t.Errorf("--engines allows %d, the RNIC %d", cli.MaxEngines, softrnic.MaxEngines)
	}
}
