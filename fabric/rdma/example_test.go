package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

const exampleNQN = "nqn.2024-01.com.example:memory"

// loopbackNIC opens an RNIC on an unused address of 127.0.0.0/8. A program that is to be reached from outside passes
// its own address to softrnic.Open.
func loopbackNIC() *softrnic.RNIC {
	nic, err := softrnic.OpenFor(netip.MustParseAddr("127.0.0.1"), softrnic.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return nic
}

// exportVolume serves a volume over RDMA. stop closes what it opened, in the order that the packages require: listener,
// RNIC, target, volume.
func exportVolume(volume blockdev.Volume) (addr netip.AddrPort, stop func() error) {
	tgt, err := target.New(target.Config{Subsystems: []target.SubsystemConfig{{
		NQN: exampleNQN, AllowAnyHost: true, Namespaces: []target.NamespaceConfig{{Volume: volume}},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	nic := loopbackNIC()
	addr = netip.AddrPortFrom(nic.Device().Attr().Addr, 4420)
	listener, err := rdma.ListenTarget(nic, addr, tgt, rdma.TargetConfig{})
	if err != nil {
		log.Fatal(err)
	}
	return addr, func() error {
		return errors.Join(listener.Close(), nic.Close(), tgt.Close(context.Background()), volume.Close())
	}
}

// connectHost connects as a host does, and returns a function that closes what it opened.
func connectHost(ctx context.Context, addr netip.AddrPort) (ctrl *host.Controller, stop func() error) {
	nic := loopbackNIC()
	transport, err := rdma.NewTransport(nic, rdma.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	ctrl, err = host.Connect(ctx, host.Config{Transport: transport, Remote: addr, SubNQN: exampleNQN})
	if err != nil {
		log.Fatal(err)
	}
	return ctrl, func() error { return errors.Join(ctrl.Close(), transport.Close(), nic.Close()) }
}

// A target that exports memory over RDMA, and a host that writes, flushes and reads.
func Example() {
	ctx := context.Background()
	volume, err := blockdev.Open("mem:1MiB", blockdev.Options{})
	if err != nil {
		log.Fatal(err)
	}
	addr, stopTarget := exportVolume(volume)
	ctrl, stopHost := connectHost(ctx, addr)

	ns, err := ctrl.Namespace(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	buf, err := ctrl.Alloc(ns.BlockSize()) // registered once; other memory is registered for each command
	if err != nil {
		log.Fatal(err)
	}
	copy(buf, "hello over RDMA")
	if _, err := ns.WriteAt(ctx, buf, 0); err != nil {
		log.Fatal(err)
	}
	if err := ns.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	clear(buf)
	if _, err := ns.ReadAt(ctx, buf, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.15s, from %d bytes\n", buf, ns.Size())

	ctrl.Free(buf)
	fmt.Println(stopHost(), stopTarget())
	// Output:
	// hello over RDMA, from 1048576 bytes
	// <nil> <nil>
}

// squares is a custom volume: block n reads as the square of n, as text. It can't be written.
type squares struct{ info blockdev.Info }

// newSquares makes a volume of n blocks.
func newSquares(blocks int64) *squares {
	return &squares{blockdev.Info{
		Kind: "squares", Mode: "computed", Size: blocks * 512, BlockSize: 512, PhysBlock: 512, Align: 1, ReadOnly: true,
	}}
}

func (v *squares) Info() blockdev.Info { return v.info }

// Submit answers at once; a volume that can't do that returns and calls r.End from another goroutine.
func (v *squares) Submit(r *blockdev.Request) {
	err := blockdev.Check(&v.info, v.info.Size, r) // checks range and buffers, and that this is no write
	if err == nil && r.Op == blockdev.OpRead {
		for at := int64(0); at < r.Length; at += 512 {
			n := (r.Offset + at) / 512
			var block [512]byte
			copy(block[:], fmt.Sprint(n*n))
			r.CopyIn(block[:], at)
		}
	}
	r.End(err)
}

func (v *squares) Close() error { return nil }

// Any blockdev.Volume can be exported. The errors of its requests become NVMe statuses, which the host can test for
// with errors.Is.
func Example_ownVolume() {
	ctx := context.Background()
	addr, stopTarget := exportVolume(newSquares(1000))
	ctrl, stopHost := connectHost(ctx, addr)

	ns, err := ctrl.Namespace(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	block := make([]byte, ns.BlockSize())
	if _, err := ns.ReadAt(ctx, block, 12*512); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.3s\n", block)
	_, err = ns.WriteAt(ctx, block, 0)
	fmt.Println(errors.Is(err, nvme.StatusNamespaceWriteProtected))

	fmt.Println(stopHost(), stopTarget())
	// Output:
	// 144
	// true
	// <nil> <nil>
}
