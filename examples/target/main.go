// Command target exports 64 MiB of memory over RDMA, from a Go program.
package main

import (
	"context"
	"flag"
	"log"
	"net/netip"
	"os"
	"os/signal"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

func main() {
	at := flag.String("addr", "127.0.0.1:4420", "address and port to listen on")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("%q: want the address as -addr", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	addr, err := netip.ParseAddrPort(*at)
	if err == nil {
		err = serve(ctx, addr)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, addr netip.AddrPort) error {
	volume, err := blockdev.Open("mem:64MiB", blockdev.Options{})
	if err != nil {
		return err
	}
	defer volume.Close()
	tgt, err := target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN:          "nqn.2026-11.org.example:embedded",
		AllowAnyHost: true,
		Namespaces:   []target.NamespaceConfig{{Volume: volume}},
	}}})
	if err != nil {
		return err
	}
	defer tgt.Close(context.Background())
	nic, err := softrnic.Open(addr.Addr(), softrnic.Config{})
	if err != nil {
		return err
	}
	defer nic.Close()
	listener, err := rdma.ListenTarget(nic, addr, tgt, rdma.TargetConfig{})
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := tgt.AddPort(rdma.DiscoveryPort(addr, nvme.RDMAProviderRoCE2)); err != nil {
		return err
	}
	log.Printf("ready: %s", addr)
	<-ctx.Done()
	return nil
}
