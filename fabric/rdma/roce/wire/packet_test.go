package wire

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

var testFlow = NewFlow(netip.MustParseAddrPort("192.0.2.1:49152"), netip.MustParseAddrPort("192.0.2.2:4791"))

// packets are one of each shape, as hex without pad and ICRC.
var packets = []struct {
	name  string
	hex   string
	want  Packet
	total int // length of the UDP payload
}{
	{
		name: "SEND ONLY of nothing", total: 16,
		hex:  "04 00 ffff 00 000011 80 ffffff",
		want: Packet{BTH: BTH{Opcode: RCSendOnly, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: 0xffffff}},
	},
	{
		name: "SEND ONLY with Invalidate, padded, solicited", total: 24,
		hex: "17 b0 ffff 00 123456 80 000001 deadbeef 61",
		want: Packet{
			BTH:  BTH{Opcode: RCSendOnlyWithInv, Solicited: true, PadCnt: 3, PKey: 0xffff, DestQP: 0x123456, AckReq: true, PSN: 1},
			IETH: IETH{RKey: 0xdeadbeef}, Payload: []byte("a"),
		},
	},
	{
		name: "SEND MIDDLE, migrated, FECN", total: 20,
		hex:  "01 40 8001 80 000011 00 000002 61626364",
		want: Packet{BTH: BTH{Opcode: RCSendMiddle, MigReq: true, FECN: true, PKey: 0x8001, DestQP: 0x11, PSN: 2}, Payload: []byte("abcd")},
	},
	{
		name: "RDMA WRITE ONLY with Immediate", total: 40,
		hex: "0b 20 ffff 00 000011 80 000003 0123456789abcdef 11223344 00000002 cafe0001 6162",
		want: Packet{
			BTH:  BTH{Opcode: RCWriteOnlyWithImm, PadCnt: 2, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: 3},
			RETH: RETH{VA: 0x0123456789abcdef, RKey: 0x11223344, Length: 2}, ImmDt: 0xcafe0001, Payload: []byte("ab"),
		},
	},
	{
		name: "RDMA READ request", total: 32,
		hex: "0c 00 ffff 00 000011 00 000004 0123456789abcdef 11223344 80000000",
		want: Packet{
			BTH:  BTH{Opcode: RCReadRequest, PKey: 0xffff, DestQP: 0x11, PSN: 4},
			RETH: RETH{VA: 0x0123456789abcdef, RKey: 0x11223344, Length: MaxMessage},
		},
	},
	{
		name: "RDMA READ request with payload", total: 36,
		hex: "0c 30 ffff 00 000011 00 000004 0123456789abcdef 11223344 80000000 61",
		want: Packet{
			BTH:  BTH{Opcode: RCReadRequest, PadCnt: 3, PKey: 0xffff, DestQP: 0x11, PSN: 4},
			RETH: RETH{VA: 0x0123456789abcdef, RKey: 0x11223344, Length: MaxMessage}, Payload: []byte("a"),
		},
	},
	{
		name: "RDMA READ response LAST", total: 24,
		hex: "0f 00 ffff 40 000011 00 000005 1f000007 61626364",
		want: Packet{
			BTH:  BTH{Opcode: RCReadResponseLast, BECN: true, PKey: 0xffff, DestQP: 0x11, PSN: 5},
			AETH: AETH{Syndrome: ACK, MSN: 7}, Payload: []byte("abcd"),
		},
	},
	{
		name: "NAK", total: 20,
		hex: "11 00 ffff 00 000011 00 000006 62fedcba",
		want: Packet{
			BTH:  BTH{Opcode: RCAcknowledge, PKey: 0xffff, DestQP: 0x11, PSN: 6},
			AETH: AETH{Syndrome: NAKRemoteAccessError, MSN: 0xfedcba},
		},
	},
	{
		name: "ATOMIC ACKNOWLEDGE", total: 28,
		hex: "12 00 ffff 00 000011 00 000007 1f000008 0102030405060708",
		want: Packet{
			BTH:  BTH{Opcode: RCAtomicAcknowledge, PKey: 0xffff, DestQP: 0x11, PSN: 7},
			AETH: AETH{Syndrome: ACK, MSN: 8}, AtomicAckETH: AtomicAckETH{OrigRemDt: 0x0102030405060708},
		},
	},
	{
		name: "CMP SWAP", total: 44,
		hex: "13 00 ffff 00 000011 80 000008 0123456789abcde8 11223344 0000000000000001 0000000000000002",
		want: Packet{
			BTH:       BTH{Opcode: RCCmpSwap, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: 8},
			AtomicETH: AtomicETH{VA: 0x0123456789abcde8, RKey: 0x11223344, SwapAdd: 1, CompareDt: 2},
		},
	},
	{
		name: "UD SEND ONLY", total: 28,
		hex: "64 00 ffff 00 000001 00 00000b 80010000 00000001 61626364",
		want: Packet{
			BTH:  BTH{Opcode: UDSendOnly, PKey: 0xffff, DestQP: QP1, PSN: 11},
			DETH: DETH{QKey: QP1QKey, SrcQP: QP1}, Payload: []byte("abcd"),
		},
	},
	{
		name: "selective acknowledgement of the second and the ninth packet", total: 24,
		hex: "c0 20 ffff 00 000011 00 00000c 60000007 0201",
		want: Packet{
			BTH:  BTH{Opcode: SelectiveAck, PadCnt: 2, PKey: 0xffff, DestQP: 0x11, PSN: 12},
			AETH: AETH{Syndrome: NAKPSNSequenceError, MSN: 7}, Payload: arrived(1, 8),
		},
	},
	{
		name: "WRITE and SEND", total: 40,
		hex: "c1 30 ffff 00 000011 80 00000d 0123456789abcdef 11223344 00000002 6162636465",
		want: Packet{
			BTH:  BTH{Opcode: WriteSend, PadCnt: 3, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: 13},
			RETH: RETH{VA: 0x0123456789abcdef, RKey: 0x11223344, Length: 2}, Payload: []byte("abcde"),
		},
	},
	{
		name: "WRITE and SEND with Invalidate", total: 40,
		hex: "c2 00 ffff 00 000011 80 00000d 0123456789abcdef 11223344 00000002 deadbeef 61626364",
		want: Packet{
			BTH:  BTH{Opcode: WriteSendWithInv, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: 13},
			RETH: RETH{VA: 0x0123456789abcdef, RKey: 0x11223344, Length: 2}, IETH: IETH{RKey: 0xdeadbeef}, Payload: []byte("abcd"),
		},
	},
	{
		name: "WRITE and SEND, with an acknowledgement", total: 40,
		hex: "e1 00 ffff 00 000011 80 00000d 0123456789abcdef 11223344 00000002 00000007 61626364",
		want: Packet{
			BTH:  BTH{Opcode: WriteSendAck, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: 13},
			RETH: RETH{VA: 0x0123456789abcdef, RKey: 0x11223344, Length: 2}, AckPSN: 7, Payload: []byte("abcd"),
		},
	},
	{
		name: "RDMA READ request with an acknowledgement", total: 36,
		hex: "ec 00 ffff 00 000011 00 000004 0123456789abcdef 11223344 00001000 00000007",
		want: Packet{
			BTH:  BTH{Opcode: ReadRequestAck, PKey: 0xffff, DestQP: 0x11, PSN: 4},
			RETH: RETH{VA: 0x0123456789abcdef, RKey: 0x11223344, Length: 4096}, AckPSN: 7,
		},
	},
	{
		name: "SEND with Invalidate, with an acknowledgement", total: 28,
		hex: "f7 00 ffff 00 000011 80 00000c deadbeef 00000007 61626364",
		want: Packet{
			BTH:  BTH{Opcode: SendOnlyWithInvAck, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: 12},
			IETH: IETH{RKey: 0xdeadbeef}, AckPSN: 7, Payload: []byte("abcd"),
		},
	},
	{
		name: "SEND with an acknowledgement", total: 24,
		hex:  "e4 00 ffff 00 000011 80 00000c 00fffffe 61626364",
		want: Packet{BTH: BTH{Opcode: SendOnlyAck, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: 12}, AckPSN: 0xfffffe, Payload: []byte("abcd")},
	},
	{
		name: "WRITE and SEND with Invalidate, with an acknowledgement", total: 48,
		hex: "e2 20 ffff 00 000011 80 00000d 0123456789abcdef 11223344 00000002 deadbeef 00000007 616263646566",
		want: Packet{
			BTH:  BTH{Opcode: WriteSendWithInvAck, PadCnt: 2, PKey: 0xffff, DestQP: 0x11, AckReq: true, PSN: 13},
			RETH: RETH{VA: 0x0123456789abcdef, RKey: 0x11223344, Length: 2}, IETH: IETH{RKey: 0xdeadbeef}, AckPSN: 7, Payload: []byte("abcdef"),
		},
	},
	{
		name: "CNP", total: 32,
		hex:  "81 00 ffff 40 000118 00 000000 00000000000000000000000000000000",
		want: Packet{BTH: BTH{Opcode: CNP, BECN: true, PKey: 0xffff, DestQP: 0x118}, Payload: make([]byte, 16)},
	},
}

// arrived is the payload of a SelectiveAck for two bytes' worth of packets.
func arrived(packets ...int) Arrived {
	a := make(Arrived, 2)
	for _, i := range packets {
		a.Set(i)
	}
	return a
}

// TestPad: a payload of any length, the longest included, is padded to a multiple of four and parsed unchanged,
// whatever the packet contained before.
func TestPad(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 4, 5, MaxPayload - 3, MaxPayload} {
		for stale := range uint8(4) {
			p := Packet{BTH: BTH{Opcode: RCSendOnly, PadCnt: stale, PKey: 0xffff}, Payload: bytes.Repeat([]byte{0xa5}, n)}
			b := p.Append(nil, testFlow, 7)
			var got Packet
			if err := Parse(&got, b); err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
			if !bytes.Equal(got.Payload, p.Payload) || len(b)&3 != 0 || len(b) != BTHSize+n+int(got.PadCnt)+ICRCSize || got.PadCnt > 3 {
				t.Errorf("%d bytes: %d of %d bytes, of which %d are pad", n, len(got.Payload), len(b), got.PadCnt)
			}
			if v, _ := testFlow.Verify(b, 7); v != Exact {
				t.Errorf("%d bytes: ICRC %v", n, v)
			}
		}
	}
}

func TestPacketGolden(t *testing.T) {
	for _, c := range packets {
		t.Run(c.name, func(t *testing.T) {
			want := unhex(t, c.hex)
			p := c.want
			b := p.Append([]byte("before"), testFlow, 7)[len("before"):]
			if len(b) != c.total || !bytes.Equal(b[:len(want)], want) {
				t.Fatalf("Append gives %d bytes\n%x, want %d beginning with\n%x", len(b), b, c.total, want)
			}
			if v, _ := testFlow.Verify(b, 7); v != Exact {
				t.Errorf("ICRC of what Append made: %v", v)
			}
			var got Packet
			if err := Parse(&got, b); err != nil {
				t.Fatal(err)
			}
			if len(got.Payload) == 0 {
				got.Payload = nil
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("Parse gives\n%+v, want\n%+v", got, c.want)
			}
		})
	}
}

func TestMakeCNP(t *testing.T) {
	var p Packet
	MakeCNP(&p, 0x118)
	f := NewFlow(netip.MustParseAddrPort("10.0.17.1:0"), netip.MustParseAddrPort("10.0.18.1:4791"))
	if got, want := p.Append(nil, f, 0x718c), unhex(t, icrcVectors[2].packet); !bytes.Equal(got, want) {
		t.Errorf("CNP is\n%x, hardware makes\n%x", got, want)
	}
}

func TestParseErrors(t *testing.T) {
	const bth = "ffff 00 000011 00 000001"
	pad := func(n int) string { return string(bytes.Repeat([]byte("00"), n)) }
	for _, c := range []struct {
		name string
		hex  string
		want Error
	}{
		{"nothing", "", ErrShort},
		{"no room for ICRC", "04 00" + bth + pad(3), ErrShort},
		{"no room for RETH", "0c 00" + bth + pad(16), ErrShort},
		{"pad exceeds what is there", "04 10" + bth + pad(4), ErrShort},
		{"length not aligned", "04 00" + bth + pad(5), ErrAlign},
		{"payload longer than any packet's", "04 00" + bth + pad(MaxPayload+4+4), ErrLong},
		{"TVer 1", "04 01" + bth + pad(4), ErrTVer},
		{"reserved opcode", "15 00" + bth + pad(4), ErrOpcode},
		{"reserved opcode with odd length", "1f 00" + bth + pad(5), ErrOpcode},
		{"unreliable connection", "24 00" + bth + pad(4), ErrOpcode},
		{"padded ACK", "11 10" + bth + pad(4+4+4), ErrPayloadSize},
		{"ACK with payload", "11 00" + bth + pad(4+4+4), ErrPayloadSize},
		{"atomic acknowledgement with payload", "12 00" + bth + pad(4+8+4+4), ErrPayloadSize},
		{"CNP of 12 bytes", "81 00" + bth + pad(12+4), ErrPayloadSize},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p Packet
			err := Parse(&p, unhex(t, c.hex))
			if !errors.Is(err, c.want) {
				t.Fatalf("Parse: %v, want %v", err, c.want)
			}
			if c.want == ErrOpcode && (p.DestQP != 0x11 || p.PSN != 1) {
				t.Errorf("the BTH is not filled after ErrOpcode: %+v", p.BTH)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	seen := map[string]bool{}
	for e := range Error(len(errorText) + 1) {
		s := e.Error()
		if s == "roce: " || seen[s] {
			t.Errorf("Error %d is %q", e, s)
		}
		seen[s] = true
	}
}

// TestExtensionHeadersShort checks that no header is parsed from fewer bytes than it has.
func TestExtensionHeadersShort(t *testing.T) {
	for name, c := range map[string]struct {
		size  int
		parse func([]byte) error
	}{
		"BTH":          {BTHSize, func(b []byte) error { return ParseBTH(new(BTH), b) }},
		"RETH":         {RETHSize, func(b []byte) error { return ParseRETH(new(RETH), b) }},
		"AETH":         {AETHSize, func(b []byte) error { return ParseAETH(new(AETH), b) }},
		"AtomicETH":    {AtomicETHSize, func(b []byte) error { return ParseAtomicETH(new(AtomicETH), b) }},
		"AtomicAckETH": {AtomicAckETHSize, func(b []byte) error { return ParseAtomicAckETH(new(AtomicAckETH), b) }},
		"ImmDt":        {ImmDtSize, func(b []byte) error { return ParseImmDt(new(ImmDt), b) }},
		"IETH":         {IETHSize, func(b []byte) error { return ParseIETH(new(IETH), b) }},
		"DETH":         {DETHSize, func(b []byte) error { return ParseDETH(new(DETH), b) }},
	} {
		for n := range c.size {
			if err := c.parse(make([]byte, n)); !errors.Is(err, ErrShort) {
				t.Errorf("%s from %d bytes: %v", name, n, err)
			}
		}
		if err := c.parse(make([]byte, c.size)); err != nil {
			t.Errorf("%s from %d bytes: %v", name, c.size, err)
		}
	}
}

func TestPKeyMatch(t *testing.T) {
	for _, c := range []struct {
		a, b uint16
		want bool
	}{
		{0xffff, 0xffff, true}, {0xffff, 0x7fff, true}, {0x7fff, 0xffff, true},
		{0x7fff, 0x7fff, false}, {0xffff, 0x8001, false}, {0x8001, 0x0001, true},
	} {
		if got := PKeyMatch(c.a, c.b); got != c.want {
			t.Errorf("PKeyMatch(%#x, %#x) = %v", c.a, c.b, got)
		}
	}
}

func TestCodecDoesNotAllocate(t *testing.T) {
	payload := make([]byte, 4096)
	buf := make([]byte, 0, MaxPacket)
	p := Packet{BTH: BTH{Opcode: RCWriteOnlyWithImm, PKey: DefaultPKey, DestQP: 5}, Payload: payload}
	b := p.Append(buf, testFlow, 3)
	src, dst := netip.MustParseAddrPort("192.0.2.1:49152"), netip.MustParseAddrPort("192.0.2.2:4791")
	testFlow.Verify(b, 0) // makes the map for this length
	if n := testing.AllocsPerRun(100, func() {
		f := NewFlow(src, dst)
		var q Packet
		if err := Parse(&q, b); err != nil {
			t.Fatal(err)
		}
		if v, _ := f.Verify(b, 0); v != Recovered {
			t.Fatal(v)
		}
		q.Append(buf, f, 3)
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

func FuzzParse(tf *testing.F) {
	f := fuzzing.New(tf)
	for _, c := range packets {
		p := c.want
		f.Add(p.Append(nil, testFlow, 0))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Packet
		err := Parse(&p, b)
		if v, _ := testFlow.Verify(b, 0); v == Exact && len(b) < MinPacket {
			t.Fatal("a packet too short verifies")
		}
		if err != nil {
			var e Error
			if !errors.As(err, &e) || e == 0 || int(e) >= len(errorText) {
				t.Fatalf("error %v has no text", err)
			}
			return
		}
		if int(p.PadCnt) != Pad(len(p.Payload)) {
			t.Fatalf("PadCnt %d for %d bytes", p.PadCnt, len(p.Payload))
		}
		out := p.Append(nil, testFlow, 1)
		if len(out) != len(b) {
			t.Fatalf("%d bytes in, %d out", len(b), len(out))
		}
		var q Packet
		if err := Parse(&q, out); err != nil {
			t.Fatalf("parsing what was appended: %v", err)
		}
		if !reflect.DeepEqual(p, q) {
			t.Fatalf("in  %+v\nout %+v", p, q)
		}
		if v, _ := testFlow.Verify(out, 1); v != Exact {
			t.Fatal("ICRC of what was appended is wrong")
		}
	})
}
