package tcp_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/dhchap"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
	"github.com/nvme-anywhere/nvmeof/statedir"
)

const exampleNQN = "nqn.2024-01.com.example:memory"

// exportMemory makes a target that exports a volume in memory.
func exportMemory() (*target.Target, blockdev.Volume) {
	volume, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	tgt, err := target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: exampleNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: volume}},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	return tgt, volume
}

// A target that exports memory over NVMe/TCP, and a host that uses it.
func Example() {
	ctx := context.Background()
	tgt, volume := exportMemory()
	defer volume.Close()
	defer tgt.Close(ctx)
	listener, err := tcp.ListenTarget(netip.MustParseAddrPort("127.0.0.1:0"), tgt, tcp.TargetConfig{})
	if err != nil {
		log.Fatal(err)
	}

	transport, err := tcp.NewTransport(tcp.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	ctrl, err := host.Connect(ctx, host.Config{Transport: transport, Remote: listener.Addr(), SubNQN: exampleNQN})
	if err != nil {
		log.Fatal(err)
	}
	ns, err := ctrl.Namespace(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, ns.BlockSize())
	copy(buf, "hello")
	if _, err := ns.WriteAt(ctx, buf, 0); err != nil {
		log.Fatal(err)
	}
	clear(buf)
	if _, err := ns.ReadAt(ctx, buf, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, from %d bytes\n", buf[:5], ns.Size())

	// The host goes first.
	fmt.Println(ctrl.Close(), transport.Close(), listener.Close())
	// Output:
	// hello, from 1048576 bytes
	// <nil> <nil> <nil>
}

// Two paths to one subsystem: when one is lost, reads and writes go on by the other.
func Example_paths() {
	ctx := context.Background()
	tgt, volume := exportMemory()
	defer volume.Close()
	defer tgt.Close(ctx)
	transport, err := tcp.NewTransport(tcp.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close()
	id := nvme.NewHostID() // identifies the host on both paths
	var cfg multipath.Config
	var listeners []*tcp.Listener
	for range 2 {
		l, err := tcp.ListenTarget(netip.MustParseAddrPort("127.0.0.1:0"), tgt, tcp.TargetConfig{})
		if err != nil {
			log.Fatal(err)
		}
		listeners = append(listeners, l)
		cfg.Paths = append(cfg.Paths, host.Config{
			Transport: transport, Remote: l.Addr(), SubNQN: exampleNQN, HostNQN: id.NQN(), HostID: id,
		})
	}
	sub, err := multipath.Connect(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	ns, err := sub.Namespace(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, ns.BlockSize())
	if _, err := ns.WriteAt(ctx, buf, 0); err != nil {
		log.Fatal(err)
	}
	_ = listeners[0].Close() // with its connections
	for range 2 {            // each path's turn
		if _, err := ns.ReadAt(ctx, buf, 0); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(sub.Paths()[1].State, sub.Close(), listeners[1].Close())
	// Output: live <nil> <nil>
}

// Host and controller prove to each other that they know their secrets. A host that doesn't know its own is refused.
func Example_authentication() {
	ctx := context.Background()
	const hostNQN = "nqn.2024-01.com.example:host"
	var secrets [3]*dhchap.Secret
	for i := range secrets {
		s, err := dhchap.Generate(nvme.AuthSHA256, 32)
		if err != nil {
			log.Fatal(err)
		}
		secrets[i] = s
	}
	hostSecret, controllerSecret, other := secrets[0], secrets[1], secrets[2]
	tgt, volume := exportMemory()
	defer volume.Close()
	defer tgt.Close(ctx)
	err := tgt.SetAuthentication(&target.Authentication{Hosts: map[string]target.HostSecrets{
		hostNQN: {Host: hostSecret, Controller: controllerSecret},
	}})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := tcp.ListenTarget(netip.MustParseAddrPort("127.0.0.1:0"), tgt, tcp.TargetConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()

	transport, err := tcp.NewTransport(tcp.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close()
	connect := func(secret *dhchap.Secret) error {
		ctrl, err := host.Connect(ctx, host.Config{
			Transport: transport, Remote: listener.Addr(), SubNQN: exampleNQN, HostNQN: hostNQN,
			Authentication: &host.Authentication{Secret: secret, ControllerSecret: controllerSecret},
		})
		if err != nil {
			return err
		}
		return ctrl.Close()
	}
	fmt.Println("with the host's secret:", connect(hostSecret))
	err = connect(other)
	fmt.Println("with another one, it is refused:", errors.Is(err, host.ErrAuthentication))
	// Output:
	// with the host's secret: <nil>
	// with another one, it is refused: true
}

// A host that creates a namespace itself; the target has a directory for namespaces that hosts create.
func Example_provision() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	state, err := statedir.Open(filepath.Join(dir, "state"))
	if err != nil {
		log.Fatal(err)
	}
	defer state.Close()
	volumes, err := blockdev.OpenDirectory(filepath.Join(dir, "volumes"), 64<<20, blockdev.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer volumes.Close()
	tgt, err := target.New(target.Config{Store: state, Subsystems: []target.SubsystemConfig{{
		NQN: exampleNQN, AllowAnyHost: true, Pool: volumes,
	}}})
	if err != nil {
		log.Fatal(err)
	}
	defer tgt.Close(ctx)
	listener, err := tcp.ListenTarget(netip.MustParseAddrPort("127.0.0.1:0"), tgt, tcp.TargetConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()

	transport, err := tcp.NewTransport(tcp.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close()
	ctrl, err := host.Connect(ctx, host.Config{Transport: transport, Remote: listener.Addr(), SubNQN: exampleNQN})
	if err != nil {
		log.Fatal(err)
	}
	defer ctrl.Close()
	const blocks = 4096
	nsid, err := ctrl.CreateNamespace(ctx, &nvme.NamespaceSpec{NSZE: blocks, NCAP: blocks, NMIC: nvme.NMICShared})
	if err != nil {
		log.Fatal(err)
	}
	if err := ctrl.AttachNamespace(ctx, nsid); err != nil {
		log.Fatal(err)
	}
	ns, err := ctrl.Namespace(ctx, nsid)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("namespace", ns.ID, "of", ns.Size(), "bytes")
	fmt.Println(ctrl.DeleteNamespace(ctx, nsid))
	// Output:
	// namespace 513 of 16777216 bytes
	// <nil>
}
