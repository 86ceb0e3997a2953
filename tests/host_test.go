package tests

import (
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/tests/hostlib"
)

// paths are the ways to reach a target program from a host in the test.
var paths = []string{"rdma", "tcp", "tcp-digests"}

// localPaths are those to a program that shares memory (--local-memory).
var localPaths = append([]string{"rdma-memory"}, paths...)

// hostSide is the host as a library in the test.
type hostSide struct{ *hostlib.Host }

// dialHost connects to a target by one of paths. change, if not nil, alters the configuration
// first. The caller closes it, or leaves that to the end of the test.
func dialHost(t testing.TB, remote netip.AddrPort, path string, change func(*host.Config)) *hostSide {
	t.Helper()
	cfg := host.Config{Remote: remote, SubNQN: testNQN}
	if change != nil {
		change(&cfg)
	}
	h, err := hostlib.Dial(t.Context(), path, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return &hostSide{h}
}

// namespace opens a namespace.
func (h *hostSide) namespace(t testing.TB, nsid uint32) *host.Namespace {
	t.Helper()
	ns, err := h.Namespace(t.Context(), nsid)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// close disconnects orderly and fails the test when that doesn't work.
func (h *hostSide) close(t testing.TB) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Errorf("disconnecting: %v", err)
	}
}

// noLeaks fails the test if goroutines that it started outlive it and its cleanups.
func noLeaks(t *testing.T) {
	t.Helper()
	alone(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}
