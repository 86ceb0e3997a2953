package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// game is one side of the ping-pong. Its memory holds two messages to receive, so that one is
// always posted, and one to send.
type game struct {
	*rc.Resources
	qp     verbs.QP
	self   rc.Peer
	server bool
	size   int
	count  int

	seed     byte // of the message sent last
	returned int  // messages that came back as they were sent
}

const buffers, sendBuffer = 3, 2

func newGame(dev verbs.Device, o options) (*game, error) {
	g := &game{server: !o.Server.IsValid(), size: o.size, count: o.count}
	if g.server {
		g.seed = 128 // or our own client's messages would look like ours, returned
	}
	var err error
	if g.Resources, err = rc.Allocate(dev, buffers*o.size, buffers); err != nil {
		return nil, err
	}
	if g.qp, g.self, err = rc.NewQP(dev, g.Resources, buffers, verbs.AccessLocalWrite); err != nil {
		return nil, err
	}
	for i := range sendBuffer {
		if err := g.receive(i); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// buffer is the memory of a message.
func (g *game) buffer(i int) []byte { return g.Buf[i*g.size:][:g.size] }

// receive posts a buffer, cleared, so that nothing old passes for what comes.
func (g *game) receive(i int) error {
	clear(g.buffer(i))
	return rc.Recv(g.qp, verbs.RecvWR{WRID: uint64(i), SGList: g.SGE(i*g.size, g.size)})
}

func (g *game) send() error {
	g.seed++
	fill(g.buffer(sendBuffer), g.seed)
	return rc.Send(g.qp, verbs.SendWR{WRID: sendBuffer, Opcode: verbs.WRSend, SGList: g.SGE(sendBuffer*g.size, g.size)})
}

// play sends count messages and receives as many, by turns; the client begins.
func (g *game) play(ctx context.Context) error {
	var received, sent, posted int
	for received < g.count || sent < g.count {
		// It is our turn when the other's message is here, and the buffer of our last one is
		// free again.
		turn := received >= posted
		if g.server {
			turn = received > posted
		}
		if turn && posted == sent && posted < g.count {
			if err := g.send(); err != nil {
				return err
			}
			posted++
		}
		wc, err := g.Next(ctx)
		if err != nil {
			return fmt.Errorf("after %d messages: %w", received, err)
		}
		if wc.Opcode == verbs.WCSend {
			sent++
			continue
		}
		if err := g.check(&wc); err != nil {
			return fmt.Errorf("message %d: %w", received, err)
		}
		received++
		if err := g.receive(int(wc.WRID)); err != nil {
			return err
		}
	}
	return nil
}

// check looks at a message: it must be of ours (ibv_rc_pingpong returns what it got), or of
// another side's pattern, or what ibv_rc_pingpong begins with.
func (g *game) check(wc *verbs.WC) error {
	if int(wc.ByteLen) != g.size {
		return fmt.Errorf("%d bytes, not %d: both sides must have the same size", wc.ByteLen, g.size)
	}
	got := g.buffer(int(wc.WRID))
	want := make([]byte, g.size)
	fill(want, got[1])
	if bytes.Equal(got, want) {
		if got[1] == g.seed {
			g.returned++
		}
		return nil
	}
	if i := notFirst(got); i >= 0 {
		return fmt.Errorf("byte %d is %#x: the data is damaged", i, got[i])
	}
	return nil
}

const page = 4096

// fill makes a pattern of a seed, with zeros where pages begin: ibv_rc_pingpong -c wants them.
func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i-1) + byte(i>>8)
		if i%page == 0 {
			b[i] = 0
		}
	}
}

// notFirst is the first byte that ibv_rc_pingpong doesn't have in its first message, or −1: it
// has 0x7b everywhere, with -c 0 where pages begin.
func notFirst(b []byte) int {
	for i, c := range b {
		if c != 0x7b && (i%page != 0 || c != 0) {
			return i
		}
	}
	return -1
}
