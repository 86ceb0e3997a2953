package main

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli/clitest"
)

func TestEmptyValues(t *testing.T) { clitest.RefusesEmptyValues(t, newRoot) }
