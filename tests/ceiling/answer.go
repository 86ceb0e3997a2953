package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"

	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// answererEnv tells the program that it is the answering process, and with which workload.
const answererEnv = "NVMEOF_CEILING_ANSWERER"

// volumeSize is the size of the memory that payloads are taken from: more than the processor's caches hold.
const volumeSize = 64 << 20

// answerer answers a batch of requests with one send: the data of all of them, which makes long trains, then the
// responses that aren't included in data, which make another.
type answerer struct {
	workload
	out    batch
	volume []byte
	next   int      // position in the volume
	heads  [][]byte // headers and CRCs of data packets, until they are sent
	crcs   [][]byte
	resps  [][]byte
	used   int // number of heads in use
	parts  [][]byte
	tags   []int // of responses that aren't included in data
}

// answer runs until its standard input ends.
func answer(spec string) error {
	if l, ok := parseTCP(spec); ok {
		return answerTCP(l)
	}
	w, err := parse(spec)
	if err != nil {
		return err
	}
	conn, err := udp.Listen(loopback(), w.config())
	if err != nil {
		return err
	}
	a := newAnswerer(w, conn) // before anybody asks: filling its volume takes a while
	fmt.Println(conn.LocalAddr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		conn.Close()
	}()
	rx := make([]udp.Received, udp.RecvBatch)
	for {
		n, err := conn.Recv(rx)
		if errors.Is(err, udp.ErrClosed) {
			return nil
		}
		if err == nil {
			err = a.batch(rx[:n])
		}
		if err != nil {
			return err
		}
	}
}

func loopback() netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0) }

func newAnswerer(w workload, conn udp.Conn) *answerer {
	a := &answerer{workload: w, out: batch{conn: conn}, volume: make([]byte, volumeSize)}
	for i := range a.volume {
		a.volume[i] = byte(i * 7)
	}
	for range w.depth * w.packets() {
		a.heads = append(a.heads, make([]byte, headerSize))
		a.crcs = append(a.crcs, make([]byte, crcSize))
	}
	for range w.depth {
		a.resps = append(a.resps, make([]byte, responseSize))
	}
	return a
}

func (a *answerer) batch(rx []udp.Received) error {
	a.tags, a.used = a.tags[:0], 0
	for i := range rx {
		a.out.peer = rx[i].Src
		for d := range rx[i].Datagrams() {
			if err := a.check(d); err != nil {
				return err
			}
			a.data(tag(d))
		}
	}
	for _, t := range a.tags {
		r := a.resps[t]
		putTag(r, t)
		a.seal(r[responseSize-crcSize:], r[:responseSize-crcSize])
		a.out.add(r)
	}
	return a.out.send()
}

// data adds the data packets of one request, gathered from the volume.
func (a *answerer) data(t int) {
	if !a.along() {
		a.tags = append(a.tags, t)
	}
	if blocks := volumeSize / a.workload.data; a.random {
		a.next = rand.IntN(blocks) * a.workload.data
	}
	for i := range a.packets() {
		head, crc := a.heads[a.used], a.crcs[a.used]
		a.used++
		n := a.part(i)
		if a.next+n > volumeSize {
			a.next = 0
		}
		a.parts = append(a.parts[:0], head, a.volume[a.next:a.next+n])
		a.next += n
		if a.along() {
			a.parts = append(a.parts, a.resps[t][:messageSize])
		}
		putTag(head, t)
		putIndex(head, i)
		a.seal(crc, a.parts...)
		a.parts = append(a.parts, crc)
		a.out.add(a.parts...)
	}
}
