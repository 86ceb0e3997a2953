package capture

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// reassemble checks sequence numbers, acknowledgements and checksums, and returns the bytes
// that each side sent, by source port.
func reassemble(t *testing.T, all []gopacket.Packet) map[layers.TCPPort][]byte {
	t.Helper()
	next := map[layers.TCPPort]uint32{}
	got := map[layers.TCPPort][]byte{}
	for i, p := range all {
		s, ok := p.TransportLayer().(*layers.TCP)
		if !ok {
			t.Fatalf("frame %d: transport layer %T", i, p.TransportLayer())
		}
		checkSums(t, p)
		if s.SYN {
			next[s.SrcPort] = s.Seq // any
		}
		if s.Seq != next[s.SrcPort] {
			t.Errorf("frame %d from %v: sequence number %d, want %d", i, s.SrcPort, s.Seq, next[s.SrcPort])
		}
		if s.ACK && s.Ack != next[s.DstPort] {
			t.Errorf("frame %d from %v: acknowledges %d, want %d", i, s.SrcPort, s.Ack, next[s.DstPort])
		}
		next[s.SrcPort] = s.Seq + uint32(len(s.Payload))
		if s.SYN || s.FIN {
			next[s.SrcPort]++
		}
		got[s.SrcPort] = append(got[s.SrcPort], s.Payload...)
	}
	return got
}

func flags(p gopacket.Packet) (s string) {
	t := p.TransportLayer().(*layers.TCP)
	for _, f := range []struct {
		set  bool
		name string
	}{{t.SYN, "S"}, {t.ACK, "A"}, {t.PSH, "P"}, {t.FIN, "F"}} {
		if f.set {
			s += f.name
		}
	}
	return s
}

func TestStream(t *testing.T) {
	for name, c := range map[string]struct {
		local, remote string
		client        bool
	}{
		"host, IPv4":   {"192.0.2.1:50000", "192.0.2.2:4420", true},
		"target, IPv6": {"[2001:db8::1]:4420", "[2001:db8::2]:50000", false},
	} {
		t.Run(name, func(t *testing.T) {
			f, m := newCapture(t)
			local, remote := netip.MustParseAddrPort(c.local), netip.MustParseAddrPort(c.remote)
			s := f.Stream(local, remote, c.client)
			big := bytes.Repeat([]byte("0123456789"), 7000)
			s.Sent([][]byte{[]byte("he"), nil, []byte("llo")})
			s.Received([][]byte{[]byte("hi"), []byte("there")}, 4)
			s.Sent(nil)
			s.Sent([][]byte{big})
			s.Close()
			s.Close()
			all, _ := frames(t, f, m)
			got := reassemble(t, all)
			if b := got[layers.TCPPort(local.Port())]; string(b) != "hello"+string(big) {
				t.Errorf("%d bytes sent", len(b))
			}
			if b := got[layers.TCPPort(remote.Port())]; string(b) != "hith" {
				t.Errorf("received %q", b)
			}
			var shape []string
			for _, p := range all {
				shape = append(shape, flags(p))
			}
			want := []string{"S", "SA", "A", "AP", "AP", "A", "A", "AP", "AF", "AF", "A"}
			if len(shape) != len(want) {
				t.Fatalf("segments %v, want %v", shape, want)
			}
			for i := range want {
				if shape[i] != want[i] {
					t.Errorf("segments %v, want %v", shape, want)
					break
				}
			}
			opener := all[0].TransportLayer().(*layers.TCP).SrcPort
			if (opener == layers.TCPPort(local.Port())) != c.client {
				t.Errorf("port %d opens the connection", opener)
			}
		})
	}
}

// TestStreamOfNobody: addresses that no connection has, as a caller's mistake may give, cost nothing but their names.
func TestStreamOfNobody(t *testing.T) {
	var none netip.Addr
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, c := range [][2]netip.Addr{{none, none}, {none, v4}, {v6, none}, {v4, v6}, {v6, v4}} {
		f, m := newCapture(t)
		s := f.Stream(netip.AddrPortFrom(c[0], 1), netip.AddrPortFrom(c[1], 2), true)
		s.Sent([][]byte{[]byte("hello")})
		s.Close()
		all, _ := frames(t, f, m)
		if got := reassemble(t, all)[1]; string(got) != "hello" {
			t.Errorf("%v: %q", c, got)
		}
	}
}

// TestStreamGap checks that records that found no room leave a gap in the sequence numbers, and
// that there is no other.
func TestStreamGap(t *testing.T) {
	gate := &stuck{gate: make(chan struct{})}
	f, err := newFile(gate, "slow disk", "test")
	if err != nil {
		t.Fatal(err)
	}
	s := f.Stream(netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:2"), true)
	s.Sent([][]byte{make([]byte, maxQueued)}) // never fits
	s.Sent([][]byte{[]byte("after")})
	if s.skipped[outward] != 0 {
		t.Errorf("%d bytes still to be skipped", s.skipped[outward])
	}
	if f.Dropped() != 1 {
		t.Errorf("%d dropped", f.Dropped())
	}
	close(gate.gate)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := s.next[outward]-s.next[inward], uint32(maxQueued+len("after")); got != want {
		t.Errorf("next sequence number %d after that of the other direction, want %d", got, want)
	}
}
