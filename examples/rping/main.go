// Command rping has a server READ memory that a client exposes and WRITE it back, like rping of
// rdma-core, and speaks its protocol: either side may be that program.
//
// It shows connections by RDMA-CM (verbs.ConnectionManager) and one-sided operations: the
// client only says where its memory is.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

const usage = `Usage: rping [flags] -bind ADDRESS    serve one client
       rping [flags] SERVER           be one

The other side may be rdma-core's: rping -s -a ADDRESS, or rping -c -a ADDRESS [-C COUNT] [-S SIZE] [-V].

`

type options struct {
	rc.Sides
	size, count int
}

func parse(args []string, errs io.Writer) (options, error) {
	var o options
	f := o.Flags("rping", usage, "RDMA-CM", 7174, errs)
	f.IntVar(&o.size, "size", 64, "client: `bytes` of a ping")
	f.IntVar(&o.count, "count", 1000, "client: `pings` to send")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	err := o.Parse(f.Args())
	switch {
	case err != nil:
	case o.size < minSize || o.size > maxSize || o.count < 1:
		err = fmt.Errorf("size %d or count %d: want %d to %d, and at least 1", o.size, o.count, minSize, maxSize)
	}
	return o, err
}

func main() { rc.Main("rping", parse, run) }

func run(ctx context.Context, o options, out io.Writer) error {
	nic, err := rc.OpenNIC(o.Bind, o.Server)
	if err != nil {
		return err
	}
	defer nic.Close()
	var n int
	if o.Server.IsValid() {
		n, err = ping(ctx, nic, o)
	} else {
		n, err = serve(ctx, nic, o.Addr(), out)
	}
	if err != nil {
		return fmt.Errorf("after %d pings: %w", n, err)
	}
	fmt.Fprintf(out, "%d pings, all verified\n", n)
	return nil
}

// side is one end of a connection. Its memory holds, one after another, the client's ping, the
// place for the pong, a message to send and one to receive.
type side struct {
	*rc.Resources
	id verbs.CMID
	qp verbs.QP

	seen    map[verbs.WCOpcode]int // completions for which next has not returned yet
	message info                   // the last one received
}

const (
	pingAt = 0
	pongAt = maxSize
	sendAt = 2 * maxSize
	recvAt = sendAt + infoSize
	memory = recvAt + infoSize

	depth = 4
)

// newSide makes what a connection needs, once its identifier has a device.
func newSide(id verbs.CMID) (*side, error) {
	r, err := rc.Allocate(id.Device(), memory, depth, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite)
	if err != nil {
		return nil, err
	}
	s := &side{Resources: r, id: id, seen: map[verbs.WCOpcode]int{}}
	if s.qp, err = id.CreateQP(r.PD, r.QPInit(depth)); err != nil {
		return nil, err
	}
	err = s.expect()
	return s, err
}

// param are the parameters of the connection: one READ at a time in each direction.
var param = verbs.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}

// expect posts the receive of the next message.
func (s *side) expect() error {
	return rc.Recv(s.qp, verbs.RecvWR{SGList: s.SGE(recvAt, infoSize)})
}

// tell sends a message; next returns when it has arrived.
func (s *side) tell(i info) error {
	i.append(s.Buf[sendAt:sendAt])
	return rc.Send(s.qp, verbs.SendWR{Opcode: verbs.WRSend, SGList: s.SGE(sendAt, infoSize)})
}

// next waits for one completion of each kind, and returns the last message received.
func (s *side) next(ctx context.Context, kinds ...verbs.WCOpcode) (info, error) {
	for _, k := range kinds {
		for s.seen[k] == 0 {
			wc, err := s.Next(ctx)
			if err != nil {
				return info{}, err
			}
			s.seen[wc.Opcode]++ // may be of a kind that is waited for later
			if wc.Opcode != verbs.WCRecv {
				continue
			}
			if s.message, err = parseInfo(s.Buf[recvAt:][:wc.ByteLen]); err != nil {
				return info{}, err
			}
			if err := s.expect(); err != nil {
				return info{}, err
			}
		}
		s.seen[k]--
	}
	return s.message, nil
}
