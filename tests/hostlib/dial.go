// Package hostlib connects tests to targets in the way of a program that uses the library.
package hostlib

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// Host is the host as a library, connected to a target.
type Host struct {
	*host.Controller
	Transport host.Transport
	closers   []io.Closer // last opened, first closed
}

// Dial connects to a target over rdma, rdma-memory (shared memory, if the target has it), tcp or tcp-digests; cfg needs
// no transport.
func Dial(ctx context.Context, path string, cfg host.Config) (_ *Host, err error) {
	h := &Host{}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if path == "rdma" || path == "rdma-memory" {
		nic, err := softrnic.OpenFor(cfg.Remote.Addr(), softrnic.Config{LocalMemory: path == "rdma-memory"})
		if err != nil {
			return nil, err
		}
		h.closers = append(h.closers, nic)
		cfg.Local = nic.Device().Attr().Addr
		t, err := rdma.NewTransport(nic, rdma.HostConfig{})
		if err != nil {
			return nil, err
		}
		h.closers = append(h.closers, t)
		h.Transport = t
	} else {
		digests := path == "tcp-digests"
		if h.Transport, err = tcp.NewTransport(tcp.HostConfig{HeaderDigest: digests, DataDigest: digests}); err != nil {
			return nil, err
		}
	}
	cfg.Transport = h.Transport
	h.Controller, err = host.Connect(ctx, cfg)
	return h, err
}

// Close disconnects orderly.
func (h *Host) Close() error {
	if h.Controller == nil {
		return nil
	}
	err := h.Controller.Close()
	h.Controller = nil
	return errors.Join(err, h.close())
}

// Abandon disconnects from a target that is gone, without telling it.
func (h *Host) Abandon() {
	if h.Controller == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.Shutdown(ctx)
	h.Controller = nil
	_ = h.close()
}

func (h *Host) close() (err error) {
	for _, c := range slices.Backward(h.closers) {
		err = errors.Join(err, c.Close())
	}
	h.closers = nil
	return err
}
