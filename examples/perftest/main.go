// Command perftest measures one operation of verbs, as the programs of the package perftest do
// (ib_write_bw, ib_read_bw, ib_send_bw and ib_atomic_bw), and speaks their set-up over TCP:
// either side may be such a program. What can be verified is; see README.md beside it.
//
// It shows every operation with many outstanding at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

const usage = `Usage: perftest [flags] -bind ADDRESS OPERATION    serve one client
       perftest [flags] OPERATION SERVER          be one

OPERATION is write, read, send, add (atomic fetch and add) or swap (atomic compare and swap).
The other side may be ib_write_bw, ib_read_bw, ib_send_bw, or ib_atomic_bw [-A CMP_AND_SWAP], of
perftest, with -F -x INDEX [-n COUNT] [-s SIZE] [SERVER], where INDEX is that of its IP address
among its GIDs (ibv_devinfo -v). Both sides must have the same count and size.

`

type options struct {
	bind, server netip.Addr
	op           *operation
	port         uint
	size, count  int
	depth        int
}

func parse(args []string, errs io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("perftest", flag.ContinueOnError)
	f.SetOutput(errs)
	f.Usage = func() {
		fmt.Fprint(errs, usage)
		f.PrintDefaults()
	}
	f.TextVar(&o.bind, "bind", netip.Addr{}, "own `address`; a client finds one by itself")
	f.UintVar(&o.port, "port", 18515, "TCP `port` of the server")
	f.IntVar(&o.size, "size", 65536, "`bytes` of a message; atomics have 8")
	f.IntVar(&o.count, "count", 1000, "`operations` of a client")
	f.IntVar(&o.depth, "depth", 16, "`operations` outstanding at once, or receives posted")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.op = operations[f.Arg(0)]
	var err error
	if f.NArg() > 1 {
		o.server, err = netip.ParseAddr(f.Arg(1))
	}
	switch {
	case f.NArg() == 0 || f.NArg() > 2:
		return o, errors.New("give an operation and, unless to wait for a client, a server (see --help)")
	case o.op == nil:
		return o, fmt.Errorf("operation %q: want write, read, send, add or swap", f.Arg(0))
	case err != nil:
		return o, fmt.Errorf("server: %w", err)
	case !o.bind.IsValid() && !o.server.IsValid():
		return o, errors.New("give -bind and the own address to wait for a client, or a server's address (see --help)")
	}
	if o.op.atomic {
		o.size = wordSize
	}
	if o.size < minSize || o.size > maxSize || o.count < 1 || o.depth < 1 || o.depth > maxDepth {
		return o, fmt.Errorf("size %d, count %d or depth %d: want %d to %d, at least 1, and 1 to %d",
			o.size, o.count, o.depth, minSize, maxSize, maxDepth)
	}
	return o, nil
}

// Bounds of the options. READs and atomics outstanding are bounded by what queue pairs offer.
const (
	minSize, maxSize = 8, 1 << 24
	maxDepth         = 128
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "perftest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	nic, err := rc.OpenNIC(o.bind, o.server)
	if err != nil {
		return err
	}
	defer nic.Close()
	conn, err := connect(ctx, o, out)
	if err != nil {
		return err
	}
	defer conn.Close()
	t, err := setUp(conn, nic.Device(), o)
	if err != nil {
		return err
	}
	if o.server.IsValid() {
		return t.client(ctx, out)
	}
	return t.serve(ctx, out)
}

// connect makes the TCP connection of the set-up.
func connect(ctx context.Context, o options, out io.Writer) (net.Conn, error) {
	if o.server.IsValid() {
		return rc.Dial(ctx, netip.AddrPortFrom(o.server, uint16(o.port)))
	}
	at := netip.AddrPortFrom(o.bind, uint16(o.port))
	return rc.Accept(ctx, at, func() { fmt.Fprintf(out, "waiting at %s\n", at) })
}

// operation is what is measured.
type operation struct {
	name   string
	opcode verbs.WROpcode
	access verbs.Access // that the server's queue pair allows
	atomic bool
	reads  bool // answered with data
}

var operations = map[string]*operation{
	"write": {name: "RDMA WRITE", opcode: verbs.WRRDMAWrite, access: verbs.AccessRemoteWrite},
	"read":  {name: "RDMA READ", opcode: verbs.WRRDMARead, access: verbs.AccessRemoteRead, reads: true},
	"send":  {name: "SEND", opcode: verbs.WRSend},
	"add":   {name: "atomic fetch and add", opcode: verbs.WRAtomicFetchAndAdd, access: verbs.AccessRemoteAtomic, atomic: true, reads: true},
	"swap":  {name: "atomic compare and swap", opcode: verbs.WRAtomicCmpAndSwp, access: verbs.AccessRemoteAtomic, atomic: true, reads: true},
}
