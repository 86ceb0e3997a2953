package capture

import (
	"net/netip"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// Conn returns a Conn that records everything that passes through c.
func (f *File) Conn(c udp.Conn) udp.Conn {
	return &conn{Conn: c, queue: f.queue, local: unmap(c.LocalAddr())}
}

// maxTrain is the most bytes that one socket call can carry: an IP packet.
const maxTrain = 0xffff

type conn struct {
	udp.Conn
	queue *queue
	local netip.AddrPort
}

func (c *conn) Recv(rx []udp.Received) (int, error) {
	n, err := c.Conn.Recv(rx)
	c.received(rx[:n])
	return n, err
}

func (c *conn) TryRecv(rx []udp.Received) (int, error) {
	n, err := c.Conn.TryRecv(rx)
	c.received(rx[:n])
	return n, err
}

// Send records before it sends: otherwise an answer could precede its question in the file.
func (c *conn) Send(trains []udp.Train) (int, error) {
	now := time.Now()
	for i := range trains {
		t := &trains[i]
		c.put(record{
			kind: udpSent, when: now, class: t.TrafficClass,
			src: c.local, dst: unmap(t.Dst), segment: t.SegmentSize, size: t.Bytes,
		}, t.Parts, t.Datagrams())
	}
	return c.Conn.Send(trains)
}

func (c *conn) received(rx []udp.Received) {
	if len(rx) == 0 {
		return
	}
	now := time.Now()
	for i := range rx {
		r := &rx[i]
		c.put(record{
			kind: udpReceived, when: now, class: r.TrafficClass,
			src: unmap(r.Src), dst: netip.AddrPortFrom(r.Dst.Unmap(), c.local.Port()),
			segment: r.SegmentSize, size: len(r.Buf),
		}, [][]byte{r.Buf}, r.Count())
	}
}

// put records anything that can be a packet, unlike a train that the socket is going to refuse.
func (c *conn) put(r record, parts [][]byte, datagrams int) {
	src, dst := r.src.Addr(), r.dst.Addr()
	if !dst.IsValid() || src.Is4() != dst.Is4() || r.size > maxTrain {
		return
	}
	c.queue.put(r, parts, max(1, datagrams))
}

// unmap returns what frames are written with. A caller's invalid address is 0.0.0.0 there.
func unmap(a netip.AddrPort) netip.AddrPort {
	ip := a.Addr().Unmap()
	if !ip.IsValid() {
		ip = netip.IPv4Unspecified()
	}
	return netip.AddrPortFrom(ip, a.Port())
}
