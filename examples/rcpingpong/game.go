package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// game is one side of the ping-pong. Its memory holds two messages to receive, so that a
// receive is always posted, and one to send.
type game struct {
	*rc.Resources
	qp     verbs.QP
	self   rc.Peer
	server bool
	size   int
	count  int

	seed     byte // of the last message sent
	returned int  // messages that came back unchanged
}

const buffers, sendBuffer = 3, 2

func newGame(dev verbs.Device, o options) (*game, error) {
	g := &game{server: !o.Server.IsValid(), size: o.size, count: o.count}
	if g.server {
		g.seed = 128 // otherwise our own client's messages would look like ours, returned
	}
	var err error
	if g.Resources, err = rc.Allocate(dev, buffers*o.size, buffers, verbs.AccessLocalWrite); err != nil {
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

// buffer returns the memory of a message.
func (g *game) buffer(i int) []byte { return g.Buf[i*g.size:][:g.size] }

// receive posts a buffer, cleared, so that old data isn't taken for new.
func (g *game) receive(i int) error {
	clear(g.buffer(i))
	return rc.Recv(g.qp, verbs.RecvWR{WRID: uint64(i), SGList: g.SGE(i*g.size, g.size)})
}

func (g *game) send() error {
	g.seed++
	fill(g.buffer(sendBuffer), g.seed)
	return rc.Send(g.qp, verbs.SendWR{WRID: sendBuffer, Opcode: verbs.WRSend, SGList: g.SGE(sendBuffer*g.size, g.size)})
}

// play sends count messages and receives as many, in turns; the client begins.
func (g *game) play(ctx context.Context) error {
	var received, sent, posted int
	for received < g.count || sent < g.count {
		// It is our turn when the other side's message has arrived, and the buffer of our last
		// one is free again.
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

// check checks a message: it must be one of ours (ibv_rc_pingpong returns what it got), have
// the pattern of another program of ours, or be the first message of ibv_rc_pingpong.
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

// fill fills b with a pattern from a seed, with zeros where pages begin: ibv_rc_pingpong -c
// requires them.
func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i-1) + byte(i>>8)
		if i%page == 0 {
			b[i] = 0
		}
	}
}

// notFirst returns the index of the first byte that isn't as in ibv_rc_pingpong's first
// message, or −1: that has 0x7b everywhere, except, with -c, 0 where pages begin.
func notFirst(b []byte) int {
	for i, c := range b {
		if c != 0x7b && (i%page != 0 || c != 0) {
			return i
		}
	}
	return -1
}
