// Command initiator writes to a namespace over RDMA and reads it back, from a Go program.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

func main() {
	at := flag.String("addr", "127.0.0.1:4420", "address and port of the target")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("%q: want the address as -addr", flag.Arg(0))
	}
	addr, err := netip.ParseAddrPort(*at)
	if err == nil {
		err = use(context.Background(), addr)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func use(ctx context.Context, addr netip.AddrPort) error {
	nics, err := softrnic.NewRoutes(softrnic.Config{})
	if err != nil {
		return err
	}
	defer nics.Close()
	transport, err := rdma.NewTransport(nics, rdma.HostConfig{})
	if err != nil {
		return err
	}
	defer transport.Close()
	ctrl, err := host.Connect(ctx, host.Config{
		Transport: transport, Remote: addr, SubNQN: "nqn.2026-11.org.example:embedded",
	})
	if err != nil {
		return err
	}
	defer ctrl.Close()
	ns, err := ctrl.Namespace(ctx, 1)
	if err != nil {
		return err
	}
	buf, err := ctrl.Alloc(ns.BlockSize()) // registered memory; any other works too
	if err != nil {
		return err
	}
	defer ctrl.Free(buf)
	copy(buf, "hello over RDMA")
	if _, err := ns.WriteAt(ctx, buf, 0); err != nil {
		return err
	}
	if err := ns.Flush(ctx); err != nil {
		return err
	}
	clear(buf)
	if _, err := ns.ReadAt(ctx, buf, 0); err != nil {
		return err
	}
	fmt.Printf("%.15s, of %d bytes\n", buf, ns.Size())
	return nil
}
