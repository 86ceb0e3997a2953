package pdu

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/samples"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// flow is one direction of a TCP connection.
type flow struct{ src, dst netip.AddrPort }

// piece is a TCP segment's payload.
type piece struct {
	seq  uint32
	data []byte
}

// tcpSegment parses an Ethernet frame as tcpdump writes it; ok is false unless it is TCP over IPv4
// with data.
func tcpSegment(b []byte) (f flow, p piece, ok bool) {
	const eth = 14
	if len(b) < eth+40 || binary.BigEndian.Uint16(b[12:]) != 0x0800 || b[eth+9] != 6 {
		return f, p, false
	}
	ip := b[eth : eth+int(binary.BigEndian.Uint16(b[eth+2:]))]
	tcp := ip[int(ip[0]&15)*4:]
	f.src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:16])), binary.BigEndian.Uint16(tcp))
	f.dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:20])), binary.BigEndian.Uint16(tcp[2:]))
	p.seq = binary.BigEndian.Uint32(tcp[4:])
	p.data = tcp[int(tcp[12]>>4)*4:]
	return f, p, len(p.data) > 0
}

// readStreams reassembles the TCP streams of a classic pcap file.
func readStreams(t testing.TB, path string) map[flow][]byte {
	t.Helper()
	pieces := map[flow][]piece{}
	for b := range samples.Frames(t, path) {
		if f, p, ok := tcpSegment(b); ok {
			pieces[f] = append(pieces[f], p)
		}
	}
	streams := map[flow][]byte{}
	for f, ps := range pieces {
		var whole bool
		if streams[f], whole = reassemble(ps); !whole {
			t.Logf("%s %v: a segment is missing; what comes after it is not looked at", path, f)
		}
	}
	return streams
}

// reassemble puts segments in order, drops retransmissions, and ends at the first gap.
func reassemble(ps []piece) (out []byte, whole bool) {
	slices.SortStableFunc(ps, func(a, b piece) int { return int(int32(a.seq - b.seq)) })
	next := ps[0].seq
	for _, p := range ps {
		skip := int32(next - p.seq)
		if skip < 0 {
			return out, false
		}
		if int(skip) < len(p.data) {
			out = append(out, p.data[skip:]...)
			next = p.seq + uint32(len(p.data))
		}
	}
	return out, true
}

// isNVMe reports whether a stream starts like NVMe/TCP rather than TLS or another protocol.
func isNVMe(s []byte) bool {
	if len(s) < HeaderSize {
		return false
	}
	h := HeaderAt(s)
	return h.Type < NumTypes && headerLengths[h.Type] != 0 && h.HLEN == headerLengths[h.Type]
}

// TestSamples parses and re-encodes every PDU that Linux sent in the captures of testdata, or
// of the directory that NVMETCP_SAMPLES names, and verifies their digests.
func TestSamples(t *testing.T) {
	var seen sampleCounts
	for _, path := range samples.Files(t, "testdata", "NVMETCP_SAMPLES") {
		for f, s := range readStreams(t, path) {
			if isNVMe(s) {
				checkStream(t, path, f, s, &seen)
			}
		}
	}
	for _, typ := range Types {
		t.Logf("%7d %v", seen.pdus[typ], typ)
		term := typ == TypeC2HTermReq || typ == TypeH2CTermReq // Linux never sends one
		if seen.pdus[typ] == 0 && !term {
			t.Errorf("no %v", typ)
		}
	}
	t.Logf("%d header digests, %d data digests", seen.header, seen.data)
	if seen.header == 0 || seen.data == 0 {
		t.Error("no digests")
	}
}

type sampleCounts struct {
	pdus         [NumTypes]int
	header, data int
}

func checkStream(t *testing.T, path string, f flow, s []byte, seen *sampleCounts) {
	t.Helper()
	ru := Rules{Self: 1 - senders[HeaderAt(s).Type]}
	for off := 0; len(s)-off >= HeaderSize; {
		h := HeaderAt(s[off:])
		ic := h.Type == TypeICReq || h.Type == TypeICResp
		ru.Ready = !ic
		ru.Format.Digests = 0
		if h.Flags&FlagHDGST != 0 {
			ru.Format.Digests |= DigestHeader
		}
		if h.Flags&FlagDDGST != 0 {
			ru.Format.Digests |= DigestData
		}
		if err := ru.Check(h); err != nil {
			t.Fatalf("%s %v: %v at %d: %v", path, f, h.Type, off, err)
		}
		if int(h.PLEN) > len(s)-off { // the capture ends here
			_, n := h.Head()
			if n = max(n, int(h.PDO)); n <= len(s)-off {
				checkHeader(t, path, s[off:off+n], seen)
			}
			return
		}
		checkPDU(t, path, s[off:off+int(h.PLEN)], seen)
		off += int(h.PLEN)
	}
}

// checkPDU checks one whole PDU.
func checkPDU(t *testing.T, path string, b []byte, seen *sampleCounts) {
	t.Helper()
	h := HeaderAt(b)
	checkHeader(t, path, b, seen)
	if h.Flags&FlagDDGST != 0 && h.hasData() {
		seen.data++
		data := b[h.PDO:][:h.DataLen()]
		if got := binary.LittleEndian.Uint32(b[len(b)-DigestSize:]); got != Digest(data) {
			t.Errorf("%s: data digest of %v is %#x, not %#x", path, h.Type, got, Digest(data))
		}
	}
}

// checkHeader checks the header of a PDU and its digest.
func checkHeader(t *testing.T, path string, b []byte, seen *sampleCounts) {
	t.Helper()
	h := HeaderAt(b)
	seen.pdus[h.Type]++
	out, err := reencode(b)
	if err != nil || !bytes.Equal(out, b[:len(out)]) {
		t.Errorf("%s: %v doesn't re-encode to the same bytes (%v):\n%x\n%x", path, h.Type, err, b[:len(out)], out)
	}
	if h.Flags&FlagHDGST != 0 {
		seen.header++
		if err := h.CheckDigest(b); err != nil {
			t.Errorf("%s: header digest of %v is %#x, not %#x", path, h.Type, err.FEI, Digest(b[:h.HLEN]))
		}
	}
}

// reencode parses a PDU up to its data and appends the result.
func reencode(b []byte) ([]byte, error) {
	h := HeaderAt(b)
	if h.Type >= NumTypes || headerLengths[h.Type] == 0 {
		return nil, Invalid(offType, "PDU-type")
	}
	if n := int(headerLengths[h.Type]); len(b) < n {
		return nil, shortError(h.Type.String(), len(b), n)
	}
	switch h.Type {
	case TypeICReq:
		p, err := ParseICReq(b)
		return p.Append(nil), err
	case TypeICResp:
		p, err := ParseICResp(b)
		return p.Append(nil), err
	case TypeCapsuleCmd:
		p := CapsuleCmd{h, *nvme.CommandAt(b[HeaderSize:])}
		return p.Append(nil), nil
	case TypeCapsuleResp:
		p := CapsuleResp{h, *nvme.CompletionAt(b[HeaderSize:])}
		return p.Append(nil), nil
	case TypeH2CData, TypeC2HData:
		p, err := ParseData(b)
		return p.Append(nil), err
	case TypeR2T:
		p, err := ParseR2T(b)
		return p.Append(nil), err
	default:
		p, err := ParseTermReq(b)
		return p.Append(nil), err
	}
}
