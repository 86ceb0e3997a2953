package linux

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/tests/linux/lab"
)

// frames checks every RoCEv2 frame between a machine and us.
type frames struct {
	ours, theirs int
	bad          int
	first        []string // what is wrong with the first bad ones
}

// watchFrames checks the frames of the machine until the test ends: each parses, encodes to the same bytes, and has the
// ICRC that results from its own Identification, those of the kernel's RNIC as well as ours.
func watchFrames(t *testing.T, p *peer) {
	t.Helper()
	s, err := p.Sniff()
	if err != nil {
		t.Fatal(err)
	}
	var f frames
	var lost uint32
	done := make(chan error, 1)
	go func() {
		var err error
		lost, err = s.Frames(f.see)
		done <- err
	}()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, what := range f.first {
			t.Error(what)
		}
		if f.ours == 0 || f.theirs == 0 {
			t.Errorf("saw %d frames of ours and %d of the kernel's", f.ours, f.theirs)
		}
		text := fmt.Sprintf("%d frames of ours and %d of rxe parsed, encoded to the same bytes, ICRC right; %d wrong", f.ours, f.theirs, f.bad)
		if lost > 0 {
			text += fmt.Sprintf("; %d more not seen", lost)
		}
		t.Attr("roce-frames", text)
	})
}

// see checks a frame.
func (f *frames) see(b []byte) {
	d, ok := roce(b)
	if !ok {
		return
	}
	if d.src.Addr() == lab.HostAddr || d.src.Addr() == lab.HostAddr6 {
		f.ours++
	} else {
		f.theirs++
	}
	if why := d.check(); why != "" {
		if f.bad++; len(f.first) < 5 {
			f.first = append(f.first, fmt.Sprintf("frame %v to %v, Identification %#04x: %s: %x", d.src, d.dst, d.id, why, d.payload))
		}
	}
}

// datagram is a RoCEv2 packet and what its ICRC covers of the IP header.
type datagram struct {
	src, dst netip.AddrPort
	id       uint16 // 0 with IPv6
	df       bool   // true with IPv6
	payload  []byte // of UDP
}

// roce extracts a RoCEv2 packet from an Ethernet frame; ok is false for every other frame.
func roce(b []byte) (d datagram, ok bool) {
	const eth, v4, v6, header, udp = 14, 20, 40, 8, 17
	if len(b) < eth+v4+header {
		return d, false
	}
	kind, ip := binary.BigEndian.Uint16(b[12:]), b[eth:]
	var src, dst netip.Addr
	switch {
	case kind == 0x0800 && ip[0] == 0x45 && ip[9] == udp:
		src, dst = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
		d.id, d.df = binary.BigEndian.Uint16(ip[4:]), ip[6] == 0x40 && ip[7] == 0
		b = ip[v4:]
	case kind == 0x86dd && len(ip) >= v6+header && ip[6] == udp:
		src, dst = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
		d.df = true
		b = ip[v6:]
	default:
		return d, false
	}
	d.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(b))
	d.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(b[2:]))
	size := int(binary.BigEndian.Uint16(b[4:]))
	if d.dst.Port() != wire.Port || size < header || size > len(b) {
		return d, false
	}
	d.payload = b[header:size]
	return d, true
}

// check says what is wrong with a packet.
func (d *datagram) check() string {
	if !d.df {
		return "no DF, or a fragment"
	}
	var p wire.Packet
	if err := wire.Parse(&p, d.payload); err != nil {
		return err.Error()
	}
	flow := wire.NewFlow(d.src, d.dst)
	if v, _ := flow.Verify(d.payload, d.id); v != wire.Exact {
		return fmt.Sprintf("wrong ICRC: %v", v)
	}
	if again := p.Append(nil, flow, d.id); !bytes.Equal(again, d.payload) {
		return fmt.Sprintf("%v encodes to %x", p.Opcode, again)
	}
	return ""
}
