package tests

import (
	"io"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// paths are the ways from a host in the test to a target program.
var paths = []string{"rdma", "tcp", "tcp-digests"}

// hostSide is the host as a library in the test.
type hostSide struct {
	*host.Controller
	transport host.Transport
	closers   []io.Closer // last opened, first closed
}

// dialHost connects to a target by one of paths. change, if not nil, alters the configuration
// first. The caller closes it, or leaves that to the end of the test.
func dialHost(t testing.TB, remote netip.AddrPort, path string, change func(*host.Config)) *hostSide {
	t.Helper()
	h := &hostSide{}
	t.Cleanup(func() { h.closeAll() })
	cfg := host.Config{Remote: remote, SubNQN: testNQN}
	if path == "rdma" {
		nic, err := softrnic.OpenFor(remote.Addr(), softrnic.Config{})
		if err != nil {
			t.Fatal(err)
		}
		h.closers = append(h.closers, nic)
		cfg.Local = nic.Device().Attr().Addr
		tr, err := rdma.NewTransport(nic, rdma.HostConfig{})
		if err != nil {
			t.Fatal(err)
		}
		h.closers = append(h.closers, tr)
		h.transport = tr
	} else {
		digests := path == "tcp-digests"
		tr, err := tcp.NewTransport(tcp.HostConfig{HeaderDigest: digests, DataDigest: digests})
		if err != nil {
			t.Fatal(err)
		}
		h.transport = tr
	}
	cfg.Transport = h.transport
	if change != nil {
		change(&cfg)
	}
	c, err := host.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.Controller = c
	return h
}

// close disconnects orderly and fails the test when that doesn't work.
func (h *hostSide) close(t testing.TB) {
	t.Helper()
	if err := h.closeAll(); err != nil {
		t.Errorf("disconnecting: %v", err)
	}
}

func (h *hostSide) closeAll() (err error) {
	if h.Controller != nil {
		err = h.Close()
		h.Controller = nil
	}
	for i := len(h.closers) - 1; i >= 0; i-- {
		if e := h.closers[i].Close(); err == nil {
			err = e
		}
	}
	h.closers = nil
	return err
}

// noLeaks fails the test when goroutines that it started outlive it and its cleanups.
func noLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}
