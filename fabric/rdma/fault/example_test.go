package fault_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/fault"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// openNIC opens an RNIC with faults on an address of 127.0.0.0/8 that nobody has.
func openNIC(faults *fault.Config) *softrnic.RNIC {
	nic, err := softrnic.OpenFor(netip.MustParseAddr("127.0.0.1"), softrnic.Config{Fault: faults})
	if err != nil {
		log.Fatal(err)
	}
	return nic
}

// A test on a bad network: a tenth of the packets that the host sends and receives is lost, duplicated or reordered,
// and the data is correct all the same.
func Example() {
	ctx := context.Background()
	const nqn = "nqn.2024-01.com.example:memory"
	volume, err := blockdev.Open("mem:1MiB", blockdev.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer volume.Close()
	tgt, err := target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: nqn, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: volume}},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	defer tgt.Close(ctx)
	good := openNIC(nil)
	defer good.Close()
	addr := netip.AddrPortFrom(good.Device().Attr().Addr, 4420)
	listener, err := rdma.ListenTarget(good, addr, tgt, rdma.TargetConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()

	faults, err := fault.Parse("loss=5%,dup=3%,reorder=2%+100us,seed=9")
	if err != nil {
		log.Fatal(err)
	}
	bad := openNIC(&faults)
	transport, err := rdma.NewTransport(bad, rdma.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	ctrl, err := host.Connect(ctx, host.Config{Transport: transport, Remote: addr, SubNQN: nqn, Queues: 2, ConnectTimeout: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	ns, err := ctrl.Namespace(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	wrote, read := make([]byte, 256<<10), make([]byte, 256<<10)
	for i := range wrote {
		wrote[i] = byte(i / 251)
	}
	if _, err := ns.WriteAt(ctx, wrote, 0); err != nil {
		log.Fatal(err)
	}
	if _, err := ns.ReadAt(ctx, read, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println("equal:", string(wrote) == string(read))
	fmt.Println(errors.Join(ctrl.Close(), transport.Close(), bad.Close()))
	// Output:
	// equal: true
	// <nil>
}

// An error names the wrong key and what it takes.
func ExampleParse() {
	_, err := fault.Parse("loss=often")
	fmt.Println(err)
	cfg, err := fault.Parse("loss=1%,delay=200us+-50us,cut=5s+2s")
	fmt.Println(cfg.String(), err)
	// Output:
	// fault loss=often: want a share from 0% to 100%, as 1%
	// loss=1%,delay=200µs±50µs,cut=5s+2s <nil>
}
