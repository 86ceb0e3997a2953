package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

func unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// icrcVectors are packets with their ICRC as computed by the specification and by hardware.
var icrcVectors = []struct {
	name     string
	src, dst string
	id       uint16
	packet   string
}{
	{
		name: "IBTA annex A17 example, IPv4",
		src:  "192.168.0.7:49152", dst: "192.168.0.7:4791", id: 1144,
		packet: "24 60 ffff 00 0000d3 00 cf1710 4630818b e28935d9 0e9a9550 5401be88 5e500000 78f353f3",
	},
	{
		name: "the same over IPv6",
		src:  "[2022::1023]:49152", dst: "[2023::1024]:4791",
		packet: "24 60 ffff 00 0000d3 00 cf1710 4630818b e28935d9 0e9a9550 5401be88 5e500000 3e5b743b",
	},
	{
		name: "CNP of a ConnectX-4 Lx",
		src:  "10.0.17.1:0", dst: "10.0.18.1:4791", id: 0x718c,
		packet: "81 00 ffff 40 000118 00 000000 00000000 00000000 00000000 00000000 82fd002a",
	},
}

func TestICRCVectors(t *testing.T) {
	for _, v := range icrcVectors {
		t.Run(v.name, func(t *testing.T) {
			f := NewFlow(netip.MustParseAddrPort(v.src), netip.MustParseAddrPort(v.dst))
			b := unhex(t, v.packet)
			if got, id := f.Verify(b, v.id); got != Exact || id != v.id {
				t.Errorf("Verify with its Identification = %v, %#x", got, id)
			}
			if f.v6 {
				return
			}
			if got, id := f.Verify(b, 0); got != Recovered || id != v.id {
				t.Errorf("Verify without = %v, %#x", got, id)
			}
		})
	}
}

// naiveICRC is the definition, over a copy of everything (annex A17.3.3).
func naiveICRC(src, dst netip.AddrPort, id uint16, flags byte, packet []byte) uint32 {
	var b []byte
	for range 8 {
		b = append(b, 0xff)
	}
	udp := len(packet) + ICRCSize + 8
	if src.Addr().Is6() {
		s, d := src.Addr().As16(), dst.Addr().As16()
		b = append(b, 0x6f, 0xff, 0xff, 0xff, byte(udp>>8), byte(udp), 17, 0xff)
		b = append(append(b, s[:]...), d[:]...)
	} else {
		total := udp + 20
		s, d := src.Addr().As4(), dst.Addr().As4()
		b = append(b, 0x45, 0xff, byte(total>>8), byte(total), byte(id>>8), byte(id), flags, 0, 0xff, 17, 0xff, 0xff)
		b = append(append(b, s[:]...), d[:]...)
	}
	b = append(b, byte(src.Port()>>8), byte(src.Port()), byte(dst.Port()>>8), byte(dst.Port()),
		byte(udp>>8), byte(udp), 0xff, 0xff)
	at := len(b)
	b = append(b, packet...)
	b[at+4] = 0xff
	return crc32.ChecksumIEEE(b)
}

func randomEndpoints(r *rand.Rand, v6 bool) (src, dst netip.AddrPort) {
	addr := func() netip.Addr {
		var b [16]byte
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		b[0] = 0x20
		if v6 {
			return netip.AddrFrom16(b)
		}
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrPortFrom(addr(), uint16(r.Uint32())), netip.AddrPortFrom(addr(), Port)
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// longer returns the length to try after n: step more, and far more once packets are longer than those of other
// devices.
func longer(n, step int) int {
	if n > MaxPathMTU+LongSend {
		return n + 251*step
	}
	return n + step
}

// TestICRCMatchesDefinition compares with the naive computation for every payload length of packets that all devices
// make, and many beyond, cut into pieces at random, and also what Put writes.
func TestICRCMatchesDefinition(t *testing.T) {
	const guard = 300 // bytes after a packet that must not be touched
	r := rand.New(rand.NewPCG(3, 4))
	for n := 0; n <= MaxPayload; n = longer(n, 1) {
		src, dst := randomEndpoints(r, n%2 != 0)
		header := randomBytes(r, BTHSize+4*r.IntN(8))
		payload := randomBytes(r, n)
		id := uint16(r.Uint32())
		packet := append(append(append([]byte{}, header...), payload...), make([]byte, Pad(n))...)
		want := naiveICRC(src, dst, id, 0x40, packet)

		flow := NewFlow(src, dst)
		a, b := r.IntN(n+1), r.IntN(n+1)
		a, b = min(a, b), max(a, b)
		if got := flow.ICRC(id, header, payload[:a], payload[a:b], payload[b:]); got != want {
			t.Fatalf("payload of %d bytes in %d+%d+%d, IPv6 %v: ICRC %#08x, want %#08x", n, a, b-a, n-b, flow.v6, got, want)
		}
		packet = binary.LittleEndian.AppendUint32(packet, want)
		to := bytes.Repeat([]byte{0xee}, len(packet)+guard)
		flow.Put(to[:len(packet)], payload[:b-a], id, header, payload[:a], payload[a:b], payload[b:])
		if !bytes.Equal(to[:len(packet)], packet) || !bytes.Equal(to[len(packet):], to[len(to)-guard:]) || to[len(to)-1] != 0xee {
			t.Fatalf("payload of %d bytes in %d+%d+%d, IPv6 %v: another packet was put", n, a, b-a, n-b, flow.v6)
		}
		if len(packet) > MaxPacket {
			continue
		}
		if v, got := flow.Verify(packet, id); v != Exact || got != id {
			t.Fatalf("payload of %d bytes: Verify = %v, %#x", n, v, got)
		}
	}
}

// A packet with DF clear is treated as damaged: no Identification explains its ICRC.
func TestDFClear(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 13))
	for n := MinPacket; n <= MaxPacket; n = longer(n, 4) {
		src, dst := randomEndpoints(r, false)
		id, packet := uint16(r.Uint32()), randomBytes(r, n-ICRCSize)
		packet = binary.LittleEndian.AppendUint32(packet, naiveICRC(src, dst, id, 0, packet))
		if v, _ := NewFlow(src, dst).Verify(packet, id); v != Bad {
			t.Fatalf("%d bytes: %v", n, v)
		}
	}
}

func TestMappedAddressesAreIPv4(t *testing.T) {
	p := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	a := NewFlow(p("192.0.2.1:1"), p("192.0.2.2:4791"))
	b := NewFlow(p("[::ffff:192.0.2.1]:1"), p("[::ffff:192.0.2.2]:4791"))
	if a != b {
		t.Error("an IPv4 address mapped into IPv6 makes another flow")
	}
}

// checkRecovery gives b the Identification id, and checks that it is found from guess.
func checkRecovery(t *testing.T, b []byte, id, guess uint16) {
	t.Helper()
	n := len(b) &^ 3
	if n < MinPacket || n > maxSolved {
		return
	}
	packet := append([]byte{}, b[:n]...)
	end := n - ICRCSize
	icrc := testFlow.ICRC(id, packet[:end])
	PutICRC(packet[end:], icrc)
	want := Recovered
	if id == guess {
		want = Exact
	}
	if v, got := testFlow.Verify(packet, guess); v != want || got != id {
		t.Fatalf("%d bytes, Identification %#x, guess %#x: %v, %#x", n, id, guess, v, got)
	}
}

func TestRecoverEveryLength(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := MinPacket; n <= maxSolved; n += 4 {
		checkRecovery(t, randomBytes(r, n), uint16(r.Uint32()), uint16(r.Uint32()))
	}
}

// TestLongPacketsAreNotSolved: if single-bit errors could pass, the whole ICRC is checked.
func TestLongPacketsAreNotSolved(t *testing.T) {
	b := randomBytes(rand.New(rand.NewPCG(7, 8)), maxSolved+4)
	end := len(b) - ICRCSize
	PutICRC(b[end:], testFlow.ICRC(7, b[:end]))
	if v, _ := testFlow.Verify(b, 7); v != Exact {
		t.Errorf("with the Identification expected: %v", v)
	}
	if v, _ := testFlow.Verify(b, 0); v != Bad {
		t.Errorf("with another one: %v", v)
	}
}

func TestRecoverEveryIdentification(t *testing.T) {
	b := randomBytes(rand.New(rand.NewPCG(7, 8)), 36)
	for id := range 1 << 16 {
		checkRecovery(t, b, uint16(id), 0)
	}
}

func TestRecoveryIsConcurrent(t *testing.T) {
	for i := range shifts {
		shifts[i].Store(nil)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 9))
			for range 500 {
				checkRecovery(t, randomBytes(r, MinPacket+r.IntN(2000)), uint16(r.Uint32()), 0)
			}
		})
	}
	wg.Wait()
}

func TestVerifyRejectsSizes(t *testing.T) {
	for _, n := range []int{0, 3, 12, 15, 17, MaxPacket + 4, 65000} {
		if v, _ := testFlow.Verify(make([]byte, n), 0); v != Bad {
			t.Errorf("%d bytes: %v", n, v)
		}
	}
}

func TestIPv6HasNoIdentification(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 11))
	src, dst := randomEndpoints(r, true)
	f := NewFlow(src, dst)
	b := randomBytes(r, 64)
	icrc := f.ICRC(0, b[:60])
	PutICRC(b[60:], icrc)
	if v, _ := f.Verify(b, 99); v != Exact {
		t.Errorf("Verify with any Identification: %v", v)
	}
	b[20]++
	if v, _ := f.Verify(b, 0); v != Bad {
		t.Errorf("a changed packet: %v", v)
	}
}

// TestStrength measures how many changed packets Verify misses, compared with what the package documentation states.
func TestStrength(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 13))
	var p Packet
	p.BTH = BTH{Opcode: RCWriteMiddle, PKey: DefaultPKey, DestQP: 0x11, PSN: 77}
	p.Payload = randomBytes(r, JumboData+LongSend)
	b := p.Append(nil, testFlow, 0x1234)

	missedBits := 0
	for bit := range 8 * len(b) {
		if bit/8 == 4 {
			continue // masked
		}
		b[bit/8] ^= 1 << (bit % 8)
		if v, _ := testFlow.Verify(b, 0); v != Bad {
			missedBits++
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	if missedBits != 0 {
		t.Errorf("%d of %d single-bit errors pass", missedBits, 8*len(b))
	}

	p.Payload = p.Payload[:256]
	b = p.Append(nil, testFlow, 0x1234)
	const trials = 1 << 18
	missed := 0
	for range trials {
		at := BTHSize + r.IntN(256-8)
		old := *(*[8]byte)(b[at:])
		binary.LittleEndian.PutUint64(b[at:], r.Uint64())
		if v, _ := testFlow.Verify(b, 0); v != Bad {
			missed++
		}
		copy(b[at:], old[:])
	}
	// One in 65,536 is expected: 4 of these.
	if missed > 16 {
		t.Errorf("%d of %d random changes pass", missed, trials)
	}
}
