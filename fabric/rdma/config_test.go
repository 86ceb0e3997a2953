package rdma_test

import (
	"errors"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
)

// TestTargetConfig: the bounds of each field are themselves valid, and what is beyond them isn't.
func TestTargetConfig(t *testing.T) {
	for _, c := range []rdma.TargetConfig{{}, {InCapsule: -1}, {InCapsule: 16384}, {MaxTransfer: 4096}, {MaxTransfer: 8 << 20},
		{QueueDepth: 32}, {QueueDepth: 1024}, {Memory: 2 << 20, PeerMemory: 2 << 20}, {MaxPeerConns: 1}} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []rdma.TargetConfig{{InCapsule: 17}, {InCapsule: 16400}, {MaxTransfer: 2048}, {MaxTransfer: 5000}, {MaxTransfer: 16 << 20},
		{QueueDepth: 31}, {QueueDepth: 1025}, {Memory: 2<<20 - 1}, {PeerMemory: -1}, {Memory: 2 << 20, PeerMemory: 2<<20 + 1}, {MaxPeerConns: -1}} {
		if err := c.Validate(); !errors.Is(err, rdma.ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestHostConfig: a negative limit is refused.
func TestHostConfig(t *testing.T) {
	for _, c := range []rdma.HostConfig{{ResolveTimeout: -1}, {Memory: -1}} {
		if _, err := rdma.NewTransport(nil, c); !errors.Is(err, rdma.ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := (rdma.HostConfig{ResolveTimeout: 1, Memory: 1}).Validate(); err != nil {
		t.Error(err)
	}
}
