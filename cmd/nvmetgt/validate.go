package main

import (
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Bounds of the flags, which hold for the transports as well.
const (
	minQueueDepth    = nvme.AdminQueueSize
	maxQueueDepth    = 1024
	maxInCapsuleRDMA = 16 << 10
	maxInCapsuleTCP  = 1 << 20
	maxBusyPoll      = 10 * time.Second
	maxConnections   = 65536
	maxIOQueues      = 1024
	minMemory        = 8 << 20
	maxMemory        = 1 << 38
	maxSerial        = len(nvme.IdentifyController{}.SN)
)

// validate checks the values of flags, before anything is opened.
func (f *serveFlags) validate(endpoints []cli.Endpoint) error {
	if len(f.volumes) == 0 {
		return cli.Usage("nothing to export: give a --volume, as --volume disk.img --size 1GiB or --volume mem:1GiB")
	}
	if err := cli.CheckNQN("--nqn", f.nqn); err != nil {
		return err
	}
	if f.discoveryNQN != "" {
		if err := cli.CheckNQN("--discovery-nqn", f.discoveryNQN); err != nil {
			return err
		}
	}
	for _, h := range f.hosts {
		if err := cli.CheckNQN("--allow-host", h); err != nil {
			return err
		}
	}
	o := blockdev.Options{Size: int64(f.size), BlockSize: int(f.blockSize)}
	if err := o.Validate(); err != nil {
		return cli.Usage("--block-size: %w", err)
	}
	if _, ok := ioModes[f.io]; !ok {
		return cli.Usage("--io %q: want auto, uring, direct or buffered", f.io)
	}
	inCapsule := maxInCapsuleTCP
	if slices.ContainsFunc(endpoints, func(e cli.Endpoint) bool { return e.Transport == nvme.TransportRDMA }) {
		inCapsule = maxInCapsuleRDMA
	}
	overRDMA := inCapsule == maxInCapsuleRDMA
	switch {
	case f.fault.Config != nil && !overRDMA:
		return cli.Usage("--fault: faults are injected into RDMA; add --listen rdma://ADDRESS, or use tc-netem for TCP, as root")
	case len(f.serial) > maxSerial:
		return cli.Usage("--serial %q has %d bytes: want at most %d", f.serial, len(f.serial), maxSerial)
	case f.queueDepth < minQueueDepth || f.queueDepth > maxQueueDepth:
		return cli.Usage("--queue-depth %d: want %d to %d", f.queueDepth, minQueueDepth, maxQueueDepth)
	case f.controllers < 0:
		return cli.Usage("--max-controllers %d: want 1 or more, or 0 for the default", f.controllers)
	case f.maxConns < 1 || f.maxConns > maxConnections:
		return cli.Usage("--max-connections %d: want 1 to %d", f.maxConns, maxConnections)
	case f.maxPeerConns < 1 || f.maxPeerConns > maxConnections:
		return cli.Usage("--max-host-connections %d: want 1 to %d", f.maxPeerConns, maxConnections)
	case f.maxQueues < 1 || f.maxQueues > maxIOQueues:
		return cli.Usage("--max-queues %d: want 1 to %d", f.maxQueues, maxIOQueues)
	case f.memory < minMemory || f.memory > maxMemory:
		return cli.Usage("--memory %v: want %v to %v", &f.memory, blockdev.FormatSize(minMemory), blockdev.FormatSize(maxMemory))
	case f.inCapsule%16 != 0 || int64(f.inCapsule) > int64(inCapsule):
		return cli.Usage("--in-capsule %d: want a multiple of 16, at most %d with RDMA and %d with TCP alone",
			int64(f.inCapsule), maxInCapsuleRDMA, maxInCapsuleTCP)
	case f.busyPoll < 0 || f.busyPoll > maxBusyPoll:
		return cli.Usage("--busy-poll %v: want 0, which is off, to %v", f.busyPoll, maxBusyPoll)
	}
	return nil
}
