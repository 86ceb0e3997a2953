package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/nvme-anywhere/nvmeof/examples/internal/rc"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// test is one side of a measurement, set up.
type test struct {
	options
	*rc.Resources
	wire       wire
	qp         verbs.QP
	mine, peer keys
	layout
}

// layout is how perftest's clients spread small messages over memory: each begins at a multiple
// of stride, and after cycle of them the first place is used again.
type layout struct {
	line, area    int // bytes of a cache line, and of the area that small messages are spread over
	stride, cycle int
}

const (
	cacheLine = 64
	page      = 4096
	wordSize  = 8 // of atomics
)

// spread computes the layout for messages of size bytes.
func (l *layout) spread(size int) {
	l.stride, l.cycle = (size+l.line-1)/l.line*l.line, 1
	if size <= l.area/2 {
		l.cycle = l.area / l.stride
	}
}

// setUp performs the exchange up to the point where the client may begin.
func setUp(conn io.ReadWriter, dev verbs.Device, o options) (*test, error) {
	t := &test{options: o, wire: wire{conn, o.Server.IsValid()}}
	mtu, err := t.agree(dev)
	if err != nil {
		return nil, err
	}
	access := o.op.access | verbs.AccessLocalWrite
	if t.Resources, err = rc.Allocate(dev, t.memory(), o.depth, access); err != nil {
		return nil, err
	}
	for i := range t.Buf {
		t.Buf[i] = before
	}
	var self rc.Peer
	if t.qp, self, err = rc.NewQP(dev, t.Resources, o.depth, access); err != nil {
		return nil, err
	}
	t.mine = keys{Peer: self, reads: 1, rkey: t.MR.RKey(), addr: t.MR.Addr() + uint64(t.target())}
	if o.op.reads {
		t.mine.reads = uint16(dev.Attr().MaxQPRdAtom)
	}
	if t.peer, err = t.wire.swapKeys("queue pairs and memory", t.mine); err != nil {
		return nil, err
	}
	reads := uint8(min(t.mine.reads, t.peer.reads, uint16(dev.Attr().MaxQPInitAtom)))
	if err := rc.Connect(t.qp, self, t.peer.Peer, mtu, reads); err != nil {
		return nil, err
	}
	swaps := 2
	if o.op.opcode == verbs.WRSend {
		if err := t.receiveAll(); err != nil {
			return nil, err
		}
		swaps = 3 // the last one says that receives are posted
	}
	for range swaps {
		if _, err := t.wire.swapKeys("word of being ready", t.mine); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// agree exchanges what must be the same on both sides.
func (t *test) agree(dev verbs.Device) (verbs.MTU, error) {
	v, err := t.wire.swap("versions", append([]byte(version), make([]byte, versionSize-len(version))...))
	if err != nil {
		return 0, err
	}
	var major, minor int
	if n, _ := fmt.Sscanf(strings.TrimRight(string(v), "\x00"), "%d.%d", &major, &minor); n != 2 || major < 5 || major == 5 && minor < 70 {
		return 0, fmt.Errorf("the other side's version is %q: want 5.70 or later", v)
	}
	area, err := t.wire.swapNumber("page sizes", page)
	if err != nil {
		return 0, err
	}
	line, err := t.wire.swapNumber("cache line sizes", cacheLine)
	if err != nil {
		return 0, err
	}
	t.area, t.line = max(area, page), max(line, cacheLine)
	if t.area > 1<<20 || t.line > page {
		return 0, fmt.Errorf("the other side's page size is %d and its cache line %d: want at most 1 MiB and 4096", area, line)
	}
	t.spread(t.size)
	return t.wire.swapMTU(dev.Attr().ActiveMTU)
}

// A client's memory has a slot for each outstanding operation. A server's has the target of
// one-sided operations between two guard pages, or a slot for each receive.

func (t *test) memory() int {
	if t.wire.client || t.op.opcode == verbs.WRSend {
		return t.depth * t.size
	}
	return 2*page + t.targetSize()
}

// target returns where the memory begins that the other side may use, if there is any.
func (t *test) target() int {
	if t.wire.client || t.op.opcode == verbs.WRSend {
		return 0
	}
	return page
}

func (t *test) targetSize() int { return max(t.size, t.area) }

// slot returns the memory of an operation.
func (t *test) slot(i int) []byte { return t.Buf[i*t.size:][:t.size] }
