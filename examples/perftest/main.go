// Command perftest measures one operation of verbs, like the programs of the package perftest
// (ib_write_bw, ib_read_bw, ib_send_bw and ib_atomic_bw), and speaks their set-up protocol over
// TCP: either side may be such a program. It verifies what can be verified; see the README.md
// of the examples.
//
// It shows every operation with many outstanding at once.
package main

import (
	"context"
	"fmt"
	"io"

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
	rc.Sides
	op          *operation
	size, count int
	depth       int
}

func parse(args []string, errs io.Writer) (options, error) {
	var o options
	f := o.Flags("perftest", usage, "TCP", 18515, errs)
	f.IntVar(&o.size, "size", 65536, "`bytes` of a message; atomics have 8")
	f.IntVar(&o.count, "count", 1000, "`operations` of a client")
	f.IntVar(&o.depth, "depth", 16, "`operations` outstanding at once, or receives posted")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.op = operations[f.Arg(0)]; o.op == nil {
		return o, fmt.Errorf("operation %q: want write, read, send, add or swap (see --help)", f.Arg(0))
	}
	if err := o.Parse(f.Args()[1:]); err != nil {
		return o, err
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

// Bounds of the options. The number of outstanding READs and atomics is bounded by what the
// queue pairs offer.
const (
	minSize, maxSize = 8, 1 << 24
	maxDepth         = 128
)

func main() { rc.Main("perftest", parse, run) }

func run(ctx context.Context, o options, out io.Writer) error {
	nic, err := rc.OpenNIC(o.Bind, o.Server)
	if err != nil {
		return err
	}
	defer nic.Close()
	conn, err := o.Meet(ctx, out)
	if err != nil {
		return err
	}
	defer conn.Close()
	t, err := setUp(conn, nic.Device(), o)
	if err != nil {
		return err
	}
	if o.Server.IsValid() {
		return t.client(ctx, out)
	}
	return t.serve(ctx, out)
}

// operation is what is measured.
type operation struct {
	name   string
	opcode verbs.WROpcode
	access verbs.Access // what the server's queue pair allows
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
