package wire

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/internal/samples"
)

// frame is a RoCEv2 packet from a capture.
type frame struct {
	src, dst netip.AddrPort
	id       uint16
	payload  []byte // of UDP
}

// roceFrame parses an Ethernet frame as tcpdump writes it; ok is false if it isn't RoCEv2 over IPv4.
func roceFrame(tb testing.TB, b []byte) (f frame, ok bool) {
	tb.Helper()
	const eth = 14
	if len(b) < eth+prefixV4 || binary.BigEndian.Uint16(b[12:]) != 0x0800 {
		return f, false
	}
	const offV4Flags = 6
	ip := b[eth:]
	udp := ip[ipv4Size:]
	if ip[0] != 0x45 || ip[9] != protoUDP || binary.BigEndian.Uint16(udp[2:]) != Port {
		return f, false
	}
	if size := int(binary.BigEndian.Uint16(udp[4:])); ip[offV4Flags] != flagDF || size < udpSize || size > len(udp) {
		tb.Errorf("a RoCEv2 frame without DF, or cut short: %x", b)
		return f, false
	}
	f.src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:16])), binary.BigEndian.Uint16(udp))
	f.dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:20])), binary.BigEndian.Uint16(udp[2:]))
	f.id = binary.BigEndian.Uint16(ip[offV4ID:])
	f.payload = udp[udpSize:binary.BigEndian.Uint16(udp[4:])]
	return f, true
}

// roceFrames returns the RoCEv2 packets of a capture.
func roceFrames(tb testing.TB, path string) (all []frame) {
	tb.Helper()
	for b := range samples.Frames(tb, path) {
		if f, ok := roceFrame(tb, b); ok {
			all = append(all, f)
		}
	}
	return all
}

// TestSamples checks the codec against every frame that Linux's rdma_rxe sent in the captures
// of testdata, or of the directory that ROCE_SAMPLES names.
func TestSamples(t *testing.T) {
	opcodes := map[Opcode]int{}
	for _, path := range samples.Files(t, "testdata", "ROCE_SAMPLES") {
		for _, f := range roceFrames(t, path) {
			opcodes[Opcode(f.payload[0])]++
			checkFrame(t, path, f)
		}
	}
	if len(opcodes) == 0 {
		t.Fatal("no RoCEv2 frame")
	}
	for o, n := range opcodes {
		t.Logf("%7d %v", n, o)
	}
}

func checkFrame(t *testing.T, path string, f frame) {
	t.Helper()
	var p Packet
	if err := Parse(&p, f.payload); err != nil {
		t.Errorf("%s: id %#04x: %v", path, f.id, err)
		return
	}
	flow := NewFlow(f.src, f.dst)
	if out := p.Append(nil, flow, f.id); !bytes.Equal(out, f.payload) {
		t.Errorf("%s: id %#04x: %v doesn't re-encode to the same bytes:\n%x\n%x", path, f.id, p.Opcode, f.payload, out)
	}
	if v, _ := flow.Verify(f.payload, f.id); v != Exact {
		t.Errorf("%s: id %#04x: ICRC with the Identification: %v", path, f.id, v)
	}
	guess := f.id + 1
	if v, id := flow.Verify(f.payload, guess); v != Recovered || id != f.id {
		t.Errorf("%s: id %#04x: ICRC without the Identification: %v, %#04x", path, f.id, v, id)
	}
}

func FuzzRecover(tf *testing.F) {
	f := fuzzing.New(tf)
	seen := map[Opcode]int{}
	for _, path := range samples.Files(f, "testdata", "ROCE_SAMPLES") {
		for _, fr := range roceFrames(f, path) {
			if o := Opcode(fr.payload[0]); seen[o] < 3 {
				seen[o]++
				f.Add(fr.payload, fr.id, fr.id+1)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, id, guess uint16) {
		checkRecovery(t, b, id, guess)
	})
}
