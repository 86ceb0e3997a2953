package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// info is the only message of the protocol: where the client's memory is. The server's
// messages, which only say that it is done, have the same size and are ignored.
type info struct {
	addr uint64
	rkey uint32
	size uint32
}

// infoSize is the size of a message: addr, rkey and size, big-endian.
const infoSize = 8 + 4 + 4

func (i info) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, i.addr)
	b = binary.BigEndian.AppendUint32(b, i.rkey)
	return binary.BigEndian.AppendUint32(b, i.size)
}

func parseInfo(b []byte) (info, error) {
	if len(b) != infoSize {
		return info{}, fmt.Errorf("message of %d bytes: want %d; is the other side an rping?", len(b), infoSize)
	}
	return info{
		addr: binary.BigEndian.Uint64(b),
		rkey: binary.BigEndian.Uint32(b[8:]),
		size: binary.BigEndian.Uint32(b[12:]),
	}, nil
}

// A ping is text that ends in a zero byte: its number, then letters, the first of which
// advances with each ping.
const (
	format = "rdma-ping-%d: "

	minSize = len("rdma-ping-2147483647: ") + 1
	maxSize = 64<<10 - 1

	firstLetter, lastLetter = 'A', 'z'
)

// makePing fills b with ping number n.
func makePing(b []byte, n int) {
	text := fmt.Appendf(b[:0], format, n)
	const letters = lastLetter - firstLetter + 1
	for i := range b[len(text):] {
		b[len(text)+i] = firstLetter + byte((n+i)%letters)
	}
	b[len(b)-1] = 0
}

// checkPing returns an error unless b is ping number n.
func checkPing(b []byte, n int) error {
	if len(b) < minSize {
		return fmt.Errorf("ping %d has %d bytes: want at least %d", n, len(b), minSize)
	}
	want := make([]byte, len(b))
	makePing(want, n)
	if !bytes.Equal(b, want) {
		return fmt.Errorf("ping %d is damaged: it begins with %.32q, and should with %.32q", n, b, want)
	}
	return nil
}
