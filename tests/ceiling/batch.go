package main

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// batch gathers datagrams for one peer into trains and sends them in one call.
type batch struct {
	conn   udp.Conn
	peer   netip.AddrPort
	trains []udp.Train // the capacity of Parts is kept
	n      int
}

// add appends a datagram to the last train, or begins another.
func (b *batch) add(parts ...[]byte) {
	if b.n > 0 && b.conn.Segments(b.peer) && b.trains[b.n-1].Append(parts...) {
		return
	}
	if b.n == len(b.trains) {
		b.trains = append(b.trains, udp.Train{})
	}
	t := &b.trains[b.n]
	b.n++
	t.Reset()
	t.Dst = b.peer
	t.Append(parts...)
}

func (b *batch) send() error {
	_, err := b.conn.Send(b.trains[:b.n])
	b.n = 0
	return err
}
