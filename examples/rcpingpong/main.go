// Command rcpingpong sends messages back and forth over a reliable connection, like
// ibv_rc_pingpong of rdma-core, and speaks its set-up protocol: either side may be that
// program.
//
// It shows the minimum that SEND and receive need: a queue pair that is connected by hand, with
// what both sides tell each other over TCP.
package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

const usage = `Usage: rcpingpong [flags] -bind ADDRESS    wait for a client
       rcpingpong [flags] SERVER           connect to a server

The other side may be rdma-core's: ibv_rc_pingpong -g INDEX [-c] [-n COUNT] [-s SIZE] [SERVER],
where INDEX is that of its IP address among its GIDs (ibv_devinfo -v).

`

// options are the options on the command line.
type options struct {
	rc.Sides
	size, count int
	mtu         int
}

func parse(args []string, errs io.Writer) (options, error) {
	var o options
	f := o.Flags("rcpingpong", usage, "TCP", 18515, errs)
	f.IntVar(&o.size, "size", 4096, "`bytes` of a message")
	f.IntVar(&o.count, "count", 1000, "`messages` each way")
	f.IntVar(&o.mtu, "mtu", 1024, "path MTU in `bytes`, the same on both sides")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	err := o.Parse(f.Args())
	switch {
	case err != nil:
	case o.size < 2 || o.size > 1<<30 || o.count < 1:
		err = fmt.Errorf("size %d or count %d: want 2 to 1 GiB, and at least 1", o.size, o.count)
	case mtuCode(o.mtu) == 0:
		err = fmt.Errorf("mtu %d: want 256, 512, 1024, 2048 or 4096", o.mtu)
	}
	return o, err
}

func main() { rc.Main("rcpingpong", parse, run) }

func run(ctx context.Context, o options, out io.Writer) error {
	nic, err := rc.OpenNIC(o.Bind, o.Server)
	if err != nil {
		return err
	}
	defer nic.Close()
	game, err := newGame(nic.Device(), o)
	if err != nil {
		return err
	}
	peer, err := meet(ctx, game, o, out)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "local   %s\nremote  %s\n", text(game.self), text(peer))
	start := time.Now()
	if err := game.play(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d messages of %d bytes each way in %v, all verified, %d of them ours, returned\n",
		o.count, o.size, time.Since(start).Round(time.Millisecond), game.returned)
	return nil
}

// meet connects the queue pairs of both sides.
func meet(ctx context.Context, g *game, o options, out io.Writer) (rc.Peer, error) {
	connect := func(peer rc.Peer) error {
		return rc.Connect(g.qp, g.self, peer, mtuCode(o.mtu), 1)
	}
	conn, err := o.Meet(ctx, out)
	if err != nil {
		return rc.Peer{}, err
	}
	defer conn.Close()
	if o.Server.IsValid() {
		return introduce(conn, g.self, connect)
	}
	return answer(conn, g.self, connect)
}

// mtuCode returns the code of a path MTU, or 0 if there is none.
func mtuCode(bytes int) verbs.MTU {
	for m := verbs.MTU256; m <= verbs.MTU4096; m++ {
		if m.Bytes() == bytes {
			return m
		}
	}
	return 0
}

func text(p rc.Peer) string { return fmt.Sprintf("%s, QP %#x, PSN %#x", p.GID.Addr(), p.QPN, p.PSN) }
