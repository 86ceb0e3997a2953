package tests

import (
	"context"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
	"github.com/nvme-anywhere/nvmeof/persist"
)

// servePair serves a volume from the test itself, over both transports, and returns the address. The target ends with
// the test.
func servePair(t testing.TB, spec string, o blockdev.Options) netip.AddrPort {
	t.Helper()
	v, err := blockdev.Open(spec, o, persist.Kind())
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "volume", v.Close)
	_, addr := serveConfig(t, target.Config{Subsystems: []target.SubsystemConfig{
		{NQN: testNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: v}}},
	}})
	return addr
}

// newMemory returns a volume in memory that lasts as long as the test.
func newMemory(t testing.TB, size int64) blockdev.Volume {
	t.Helper()
	v, err := blockdev.NewMemory(blockdev.Options{Size: size})
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "volume", v.Close)
	return v
}

// undo calls f at the end of the test, which fails if f does.
func undo(t testing.TB, what string, f func() error) {
	t.Cleanup(func() {
		if err := f(); err != nil {
			t.Errorf("closing the %s: %v", what, err)
		}
	})
}

// serveConfig serves a target from the test itself, over both transports at one address.
func serveConfig(t testing.TB, cfg target.Config) (*target.Target, netip.AddrPort) {
	t.Helper()
	tgt, err := target.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "target", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return tgt.Close(ctx)
	})
	return tgt, listenPair(t, tgt)
}

// listenPair makes a target listen on one more address, over both transports.
func listenPair(t testing.TB, tgt *target.Target) netip.AddrPort {
	t.Helper()
	addr := netip.AddrPortFrom(freeAddr(t), 4420)
	listenAt(t, tgt, addr)
	return addr
}

// listenAt makes a target listen at an address, over both transports.
func listenAt(t testing.TB, tgt *target.Target, addr netip.AddrPort) {
	t.Helper()
	nic, err := softrnic.Open(addr.Addr(), softrnic.Config{LocalMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "RNIC", nic.Close)
	rl, err := rdma.ListenTarget(nic, addr, tgt, rdma.TargetConfig{})
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "RDMA listener", rl.Close)
	tl, err := tcp.ListenTarget(addr, tgt, tcp.TargetConfig{})
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "TCP listener", tl.Close)
}

// dialPair connects to a target of servePair with one I/O queue.
func dialPair(t testing.TB, remote netip.AddrPort, path string) *hostSide {
	t.Helper()
	return dialHost(t, remote, path, func(c *host.Config) { c.Queues, c.QueueSize = 1, loadDepth+1 })
}

// memVolume and fileVolume are volumes that answer at once and later; pmemVolume lends the memory that writes go to.
func memVolume(testing.TB) (string, blockdev.Options) { return "mem:64MiB", blockdev.Options{} }

func fileVolume(t testing.TB) (string, blockdev.Options) {
	return filepath.Join(t.TempDir(), "disk.img"), blockdev.Options{Size: 64 << 20}
}

func ringVolume(t testing.TB) (string, blockdev.Options) {
	needMode(t, blockdev.IOUring)
	spec, o := fileVolume(t)
	o.IO = blockdev.IOUring
	return spec, o
}

// needMode skips a test if temporary files don't support that mode, such as direct I/O on a tmpfs.
func needMode(t testing.TB, mode blockdev.IOMode) {
	t.Helper()
	v, err := blockdev.OpenFile(filepath.Join(t.TempDir(), "probe"), blockdev.Options{Size: 1 << 20, IO: mode})
	if err != nil {
		t.Skip(err)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
}

// needIO is needMode for a value of --io.
func needIO(t testing.TB, io string) {
	t.Helper()
	needMode(t, map[string]blockdev.IOMode{
		"auto": blockdev.IOAuto, "buffered": blockdev.IOBuffered, "uring": blockdev.IOUring, "direct": blockdev.IODirect,
	}[io])
}

func pmemVolume(t testing.TB) (string, blockdev.Options) {
	return "pmem:" + filepath.Join(t.TempDir(), "pmem.img"), blockdev.Options{Size: 64 << 20}
}
