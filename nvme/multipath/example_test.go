package multipath_test

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

const exampleNQN = "nqn.2024-01.com.example:ledger"

// serve exports a volume until stop is called.
func serve(volume blockdev.Volume, addr netip.AddrPort) (stop func()) {
	tgt, err := target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: exampleNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: volume}},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := tcp.ListenTarget(addr, tgt, tcp.TargetConfig{})
	if err != nil {
		log.Fatal(err)
	}
	return func() {
		if err := listener.Close(); err != nil {
			log.Fatal(err)
		}
		if err := tgt.Close(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
}

// A program that survives a restart of its target: one path is enough. Its requests wait in the meantime, and end
// when the target is back.
func Example() {
	volume, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer volume.Close()
	// A loopback address that nobody else uses while the target is away.
	part := func() byte { return byte(1 + rand.N(254)) }
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, part(), part(), part()}), 4420)
	stop := serve(volume, addr)

	ctx := context.Background()
	transport, err := tcp.NewTransport(tcp.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close()
	id := nvme.NewHostID()
	states := make(chan multipath.State, 16)
	sub, err := multipath.Connect(ctx, multipath.Config{
		Paths: []host.Config{{
			Transport: transport, Remote: addr, SubNQN: exampleNQN, HostNQN: id.NQN(), HostID: id, // identifies the host, also after a restart
		}},
		Changed: func(p multipath.PathStatus) { states <- p.State },
	})
	if err != nil {
		log.Fatal(err)
	}
	ns, err := sub.Namespace(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-states)

	stop()
	fmt.Println(<-states)
	written := make(chan error)
	go func() {
		_, err := ns.WriteAt(ctx, make([]byte, ns.BlockSize()), 0)
		written <- err
	}()
	stop = serve(volume, addr)
	fmt.Println(<-states, <-written)

	fmt.Println(sub.Close()) // the host goes first
	stop()
	// Output:
	// live
	// reconnecting
	// live <nil>
	// <nil>
}
