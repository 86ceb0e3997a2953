package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// frame is a RoCEv2 packet out of a capture.
type frame struct {
	src, dst netip.AddrPort
	id       uint16
	payload  []byte // of UDP
}

// roceFrame takes apart an Ethernet frame as tcpdump writes it; ok is false for what isn't
// RoCEv2 over IPv4.
func roceFrame(tb testing.TB, b []byte) (f frame, ok bool) {
	tb.Helper()
	const eth = 14
	if len(b) < eth+prefixV4 || binary.BigEndian.Uint16(b[12:]) != 0x0800 {
		return f, false
	}
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

// readCapture calls do for each RoCEv2 frame of a classic pcap file and returns their number.
func readCapture(tb testing.TB, path string, do func(frame)) (n int) {
	tb.Helper()
	file, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	r, err := pcapgo.NewReader(file)
	if err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	for {
		b, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return n
		} else if err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		if f, ok := roceFrame(tb, b); ok {
			n++
			do(f)
		}
	}
}

// TestSamples checks the codec against every frame that Linux's rdma_rxe sent in the captures
// of testdata, or of the directory that ROCE_SAMPLES names.
func TestSamples(t *testing.T) {
	dir := "testdata"
	if d := os.Getenv("ROCE_SAMPLES"); d != "" {
		dir = d
	}
	files, frames := 0, 0
	opcodes := map[Opcode]int{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".pcap" {
			return err
		}
		n := readCapture(t, path, func(f frame) {
			opcodes[Opcode(f.payload[0])]++
			checkFrame(t, path, f)
		})
		if n > 0 {
			files++
			frames += n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if frames == 0 {
		t.Fatalf("no RoCEv2 frame in %s", dir)
	}
	t.Logf("%d frames in %d captures", frames, files)
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
	if v, _ := flow.WithoutDF().Verify(f.payload, f.id); v != Bad {
		t.Errorf("%s: id %#04x: ICRC as if DF were clear: %v", path, f.id, v)
	}
}

func FuzzRecover(tf *testing.F) {
	f := fuzzing.New(tf)
	files, err := filepath.Glob("testdata/*/*.pcap")
	if err != nil {
		f.Fatal(err)
	}
	seen := map[Opcode]int{}
	for _, path := range files {
		readCapture(f, path, func(fr frame) {
			if o := Opcode(fr.payload[0]); seen[o] < 3 {
				seen[o]++
				f.Add(fr.payload, fr.id, fr.id+1)
			}
		})
	}
	f.Fuzz(func(t *testing.T, b []byte, id, guess uint16) {
		checkRecovery(t, b, id, guess)
	})
}
