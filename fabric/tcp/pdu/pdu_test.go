package pdu

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// unhex reads hex digits with spaces between them.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGolden compares each PDU, up to its data, with the bytes that the specification requires.
func TestGolden(t *testing.T) {
	zeroes := func(n int) string { return strings.Repeat("00", n) }
	cmd := nvme.Command{0: 0x02, 1: 0x40, 2: 0x34, 3: 0x12, 63: 0xee}
	cqe := nvme.Completion{0: 0x01, 12: 0x34, 13: 0x12, 15: 0x80}
	tests := []struct {
		name string
		pdu  interface{ Append([]byte) []byte }
		want string
	}{
		{"ICReq", ICReq{HPDA: 3, Digests: DigestHeader | DigestData, MAXR2T: 0x01020304},
			"00 00 80 00 80000000 0000 03 03 04030201" + zeroes(112)},
		{"ICResp", ICResp{PFV: 0x0102, CPDA: 31, Digests: DigestData, MAXH2CDATA: 0x20000},
			"01 00 80 00 80000000 0201 1f 02 00000200" + zeroes(112)},
		{"CapsuleCmd", &CapsuleCmd{Header{TypeCapsuleCmd, FlagHDGST | FlagDDGST, 72, 80, 80 + 512 + 4}, cmd},
			"04 03 48 50 54020000 02403412" + zeroes(59) + "ee" + "cd810148 00000000"},
		{"CapsuleResp", &CapsuleResp{Header{TypeCapsuleResp, 0, 24, 0, 24}, cqe},
			"05 00 18 00 18000000 01" + zeroes(11) + "3412 0080"},
		{"H2CData", &Data{Header{TypeH2CData, FlagLast, 24, 24, 24 + 4096}, 0x1234, 0xffff, 0x1000, 0x1000},
			"06 04 18 18 18100000 3412 ffff 00100000 00100000 00000000"},
		{"C2HData", &Data{Header{TypeC2HData, FlagLast | FlagSuccess, 24, 24, 24 + 512}, 1, 0, 0, 512},
			"07 0c 18 18 18020000 0100 0000 00000000 00020000 00000000"},
		{"R2T", &R2T{Header{TypeR2T, 0, 24, 0, 24}, 0x1234, 0x5678, 0, 0x20000},
			"09 00 18 00 18000000 3412 7856 00000000 00000200 00000000"},
		{"C2HTermReq", TermReq{TypeC2HTermReq, FESHeaderDigest, 0xdeadbeef, []byte{4, 1, 0x48}},
			"03 00 18 00 1b000000 0300 efbeadde" + zeroes(10) + "040148"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := unhex(t, tt.want)
			got := tt.pdu.Append(nil)
			if !bytes.Equal(got, want) {
				t.Fatalf("\n got %x\nwant %x", got, want)
			}
			again, err := reencode(want)
			if err != nil || !bytes.Equal(again, want) {
				t.Errorf("parsed and appended again: %v\n got %x\nwant %x", err, again, want)
			}
			parsed, _ := HeaderAt(want).Head()
			for n := HeaderSize; n < parsed; n++ {
				if _, err := reencode(want[:n]); err == nil {
					t.Errorf("the first %d of %d bytes parse", n, parsed)
				}
			}
		})
	}
}

// TestDigest checks the digests against known values: CRC32C of RFC 3720, appendix B.4.
func TestDigest(t *testing.T) {
	zeroes, ones := make([]byte, 32), bytes.Repeat([]byte{0xff}, 32)
	if got := Digest(zeroes); got != 0x8a9136aa {
		t.Errorf("of 32 zeroes: %#x", got)
	}
	if got := AppendDigest(nil, UpdateDigest(Digest(ones[:9]), ones[9:])); !bytes.Equal(got, unhex(t, "43aba862")) {
		t.Errorf("of 32 ones, on the wire: %x", got)
	}
}

// TestFormat checks PDO, PLEN and padding for every alignment and digest that can be agreed.
func TestFormat(t *testing.T) {
	for pda := uint8(0); pda <= MaxAlignment; pda++ {
		for digests := range allDigests + 1 {
			f := Format{Digests: digests, PDA: pda}
			p := CapsuleCmd{Header: f.Header(TypeCapsuleCmd, 512)}
			b := p.Append([]byte("before"))[len("before"):]
			if len(b) != int(p.PDO) || len(b) > MaxHead || int(p.PDO)%(4*(int(pda)+1)) != 0 {
				t.Fatalf("%+v: %d bytes up to the data, PDO %d", f, len(b), p.PDO)
			}
			ru := Rules{Self: Controller, Ready: true, Format: f}
			if err := ru.Check(p.Header); err != nil {
				t.Fatalf("%+v: %v", f, err)
			}
			if err := p.CheckDigest(b); err != nil {
				t.Fatalf("%+v: %v", f, err)
			}
			if p.DataLen() != 512 {
				t.Fatalf("%+v: DataLen %d", f, p.DataLen())
			}
			alone := R2T{Header: f.Header(TypeR2T, 0)}
			if b := alone.Append(nil); len(b) != int(alone.PLEN) || alone.PDO != 0 || alone.Flags&FlagDDGST != 0 {
				t.Fatalf("%+v: an R2T of %d bytes is %+v", f, len(b), alone)
			}
		}
	}
}

// TestCheckDigest flips each bit of a header with its digest: none passes.
func TestCheckDigest(t *testing.T) {
	p := R2T{Header: Format{Digests: DigestHeader}.Header(TypeR2T, 0), CCCID: 7, R2TL: 4096}
	good := p.Append(nil)
	if err := p.CheckDigest(good); err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(good) {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		err := p.CheckDigest(b)
		if err == nil || err.FES != FESHeaderDigest || err.FEI != binary.LittleEndian.Uint32(b[R2TSize:]) {
			t.Fatalf("bit %d: %v", bit, err)
		}
	}
}

// TestValues changes one value at a time in PDUs whose headers are valid.
func TestValues(t *testing.T) {
	data := func(typ Type, flags uint8, n int, datal uint32) *FieldError {
		p := Data{Header: Format{Digests: allDigests}.Header(typ, n), DATAL: datal}
		p.Flags |= flags
		return p.Check()
	}
	tests := []struct {
		name string
		err  *FieldError
		fes  FES // 0: good
		fei  uint32
	}{
		{"ICReq", ICReq{HPDA: 31, Digests: 0xff, MAXR2T: 1 << 31}.Check(), 0, 0},
		{"ICReq PFV", ICReq{PFV: 1}.Check(), FESUnsupportedParm, 8},
		{"ICReq HPDA", ICReq{HPDA: 32}.Check(), FESInvalidHeader, 10},
		{"ICResp", ICResp{CPDA: 31, MAXH2CDATA: 4096}.Check(0), 0, 0},
		{"ICResp with digests", ICResp{Digests: 3, MAXH2CDATA: 1 << 20}.Check(3), 0, 0},
		{"ICResp PFV", ICResp{PFV: 1, MAXH2CDATA: 4096}.Check(0), FESUnsupportedParm, 8},
		{"ICResp CPDA", ICResp{CPDA: 32, MAXH2CDATA: 4096}.Check(0), FESInvalidHeader, 10},
		{"ICResp without digest", ICResp{Digests: 1, MAXH2CDATA: 4096}.Check(3), FESUnsupportedParm, 11},
		{"ICResp with digest unasked", ICResp{Digests: 1, MAXH2CDATA: 4096}.Check(0), FESInvalidHeader, 11},
		{"ICResp MAXH2CDATA small", ICResp{MAXH2CDATA: 4092}.Check(0), FESInvalidHeader, 12},
		{"ICResp MAXH2CDATA odd", ICResp{MAXH2CDATA: 4098}.Check(0), FESInvalidHeader, 12},
		{"H2CData", data(TypeH2CData, 0, 512, 512), 0, 0},
		{"H2CData with what is reserved there", data(TypeH2CData, FlagSuccess, 512, 512), 0, 0},
		{"H2CData DATAL", data(TypeH2CData, 0, 512, 516), FESInvalidHeader, 16},
		{"C2HData DATAL", data(TypeC2HData, FlagLast, 512, 0), FESInvalidHeader, 16},
		{"C2HData that responds", data(TypeC2HData, FlagLast|FlagSuccess, 512, 512), 0, 0},
		{"C2HData that responds before its end", data(TypeC2HData, FlagSuccess, 512, 512), FESInvalidHeader, 1},
	}
	for _, tt := range tests {
		expect(t, tt.name, tt.err, tt.fes, tt.fei)
	}
}

// expect compares the result of a check with what a terminate request should say; fes 0 is no error.
func expect(t *testing.T, name string, err *FieldError, fes FES, fei uint32) {
	t.Helper()
	switch {
	case fes == 0 && err != nil:
		t.Errorf("%s: %v", name, err)
	case fes != 0 && (err == nil || err.FES != fes || err.FEI != fei):
		t.Errorf("%s: got %v, want FES %d FEI %d", name, err, fes, fei)
	}
}

// TestCheck changes one thing at a time in a valid header and expects the terminate request that
// the specification requires.
func TestCheck(t *testing.T) {
	host := Rules{Self: Host, Ready: true}
	ctrl := Rules{Self: Controller, Ready: true}
	digests := Rules{Self: Controller, Ready: true, Format: Format{Digests: allDigests}}
	fresh := Rules{Self: Controller}
	aligned := Rules{Self: Controller, Ready: true, Format: Format{PDA: 3}}
	tests := []struct {
		name string
		ru   Rules
		h    Header
		fes  FES // 0: good
		fei  uint32
	}{
		{"ICReq", fresh, Header{TypeICReq, 0, 128, 0, 128}, 0, 0},
		{"ICReq too short", fresh, Header{TypeICReq, 0, 128, 0, 127}, FESInvalidHeader, OffPLEN},
		{"ICReq too long", fresh, Header{TypeICReq, 0, 128, 0, 129}, FESInvalidHeader, OffPLEN},
		{"ICReq HLEN", fresh, Header{TypeICReq, 0, 64, 0, 128}, FESInvalidHeader, offHLEN},
		{"ICReq digest", fresh, Header{TypeICReq, FlagHDGST, 128, 0, 128}, FESInvalidHeader, OffFlags},
		{"second ICReq", ctrl, Header{TypeICReq, 0, 128, 0, 128}, FESSequence, 0},
		{"command before ICReq", fresh, Header{TypeCapsuleCmd, 0, 72, 0, 72}, FESSequence, 0},
		{"type 8", ctrl, Header{8, 0, 24, 0, 24}, FESInvalidHeader, offType},
		{"type 0ah", ctrl, Header{NumTypes, 0, 24, 0, 24}, FESInvalidHeader, offType},
		{"type 255", ctrl, Header{255, 0, 24, 0, 24}, FESInvalidHeader, offType},
		{"response to a controller", ctrl, Header{TypeCapsuleResp, 0, 24, 0, 24}, FESSequence, 0},
		{"command to a host", host, Header{TypeCapsuleCmd, 0, 72, 0, 72}, FESSequence, 0},
		{"command", ctrl, Header{TypeCapsuleCmd, 0, 72, 0, 72}, 0, 0},
		{"command with data", ctrl, Header{TypeCapsuleCmd, 0, 72, 72, 72 + 512}, 0, 0},
		{"command HLEN", ctrl, Header{TypeCapsuleCmd, 0, 71, 0, 72}, FESInvalidHeader, offHLEN},
		{"command PLEN", ctrl, Header{TypeCapsuleCmd, 0, 72, 0, 71}, FESInvalidHeader, OffPLEN},
		{"command PDO in the header", ctrl, Header{TypeCapsuleCmd, 0, 72, 68, 600}, FESInvalidHeader, offPDO},
		{"command PDO odd", ctrl, Header{TypeCapsuleCmd, 0, 72, 74, 600}, FESInvalidHeader, offPDO},
		{"command PDO not aligned", aligned, Header{TypeCapsuleCmd, 0, 72, 72, 600}, FESInvalidHeader, offPDO},
		{"command PDO aligned", aligned, Header{TypeCapsuleCmd, 0, 72, 80, 600}, 0, 0},
		{"command PDO beyond", ctrl, Header{TypeCapsuleCmd, 0, 72, 200, 180}, FESInvalidHeader, OffPLEN},
		{"command digest unasked", ctrl, Header{TypeCapsuleCmd, FlagHDGST, 72, 0, 76}, FESInvalidHeader, OffFlags},
		{"command without digest", digests, Header{TypeCapsuleCmd, 0, 72, 0, 72}, FESInvalidHeader, OffFlags},
		{"command data digest missing", digests, Header{TypeCapsuleCmd, FlagHDGST, 72, 76, 600}, FESInvalidHeader, OffFlags},
		{"command with digests", digests, Header{TypeCapsuleCmd, FlagHDGST | FlagDDGST, 72, 76, 76 + 516}, 0, 0},
		{"command with digest, no data", digests, Header{TypeCapsuleCmd, FlagHDGST, 72, 0, 76}, 0, 0},
		{"data of nothing but its digest", digests, Header{TypeH2CData, FlagHDGST | FlagDDGST, 24, 28, 32}, FESInvalidHeader, OffPLEN},
		{"H2CData without data", ctrl, Header{TypeH2CData, FlagLast, 24, 24, 24}, FESInvalidHeader, OffPLEN},
		{"H2CData", ctrl, Header{TypeH2CData, FlagLast, 24, 24, 28}, 0, 0},
		{"response", host, Header{TypeCapsuleResp, 0, 24, 0, 24}, 0, 0},
		{"response with data", host, Header{TypeCapsuleResp, 0, 24, 24, 28}, FESInvalidHeader, OffPLEN},
		{"R2T with data", host, Header{TypeR2T, 0, 24, 24, 28}, FESInvalidHeader, OffPLEN},
		{"C2HTermReq", host, Header{TypeC2HTermReq, 0, 24, 0, 152}, 0, 0},
		{"C2HTermReq before ICResp", Rules{Self: Host}, Header{TypeC2HTermReq, 0, 24, 0, 24}, 0, 0},
		{"C2HTermReq too short", host, Header{TypeC2HTermReq, 0, 24, 0, 23}, FESInvalidHeader, OffPLEN},
		{"C2HTermReq too long", host, Header{TypeC2HTermReq, 0, 24, 0, 153}, FESInvalidHeader, OffPLEN},
		{"H2CTermReq before ICReq", fresh, Header{TypeH2CTermReq, 0, 24, 0, 24}, 0, 0},
	}
	for _, tt := range tests {
		expect(t, tt.name, tt.ru.Check(tt.h), tt.fes, tt.fei)
	}
}

// TestHead: the header alone tells how much of a PDU is needed to parse it, and how much of it is data.
func TestHead(t *testing.T) {
	for name, c := range map[string]struct {
		h                   Header
		parsed, whole, data int
	}{
		"command":                      {Header{TypeCapsuleCmd, 0, 72, 0, 72}, 72, 72, 0},
		"command with a header digest": {Header{TypeCapsuleCmd, FlagHDGST, 72, 0, 76}, 72, 76, 0},
		"command with data":            {Header{TypeCapsuleCmd, FlagHDGST | FlagDDGST, 72, 80, 80 + 512 + 4}, 72, 76, 512},
		"command with one byte":        {Header{TypeCapsuleCmd, 0, 72, 72, 73}, 72, 72, 1},
		"response":                     {Header{TypeCapsuleResp, FlagHDGST, 24, 0, 28}, 24, 28, 0},
		"R2T":                          {Header{TypeR2T, 0, 24, 0, 24}, 24, 24, 0},
		"C2HTermReq":                   {Header{TypeC2HTermReq, 0, 24, 0, 24 + 72}, 96, 96, 0},
		"H2CTermReq":                   {Header{TypeH2CTermReq, 0, 24, 0, 24}, 24, 24, 0},
	} {
		parsed, whole := c.h.Head()
		if data := c.h.DataLen(); parsed != c.parsed || whole != c.whole || data != c.data {
			t.Errorf("%s: %d and %d bytes of header, %d of data; want %d, %d, %d", name, parsed, whole, data, c.parsed, c.whole, c.data)
		}
	}
}

// TestShort: parsing fails if a PDU isn't all there, and for a terminate request whose length is invalid.
func TestShort(t *testing.T) {
	for name, c := range map[string]struct {
		size  int
		parse func(b []byte) error
	}{
		"ICReq":   {ICSize, func(b []byte) error { _, err := ParseICReq(b); return err }},
		"ICResp":  {ICSize, func(b []byte) error { _, err := ParseICResp(b); return err }},
		"data":    {DataSize, func(b []byte) error { _, err := ParseData(b); return err }},
		"R2T":     {R2TSize, func(b []byte) error { _, err := ParseR2T(b); return err }},
		"TermReq": {TermReqSize, func(b []byte) error { _, err := ParseTermReq(b); return err }},
	} {
		b := Header{Type: TypeC2HTermReq, PLEN: TermReqSize}.Append(nil)
		b = append(b, make([]byte, c.size-len(b))...)
		if err := c.parse(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.parse(b[:c.size-1]) == nil || c.parse(b[:HeaderSize]) == nil {
			t.Errorf("%s: less than %d bytes parse", name, c.size)
		}
	}
	b := TermReq{Type: TypeC2HTermReq, Offence: make([]byte, 2*MaxTermData)}.Append(nil)
	if p, err := ParseTermReq(b); err != nil || len(p.Offence) != MaxTermData {
		t.Errorf("the longest terminate request: %d bytes, %v", len(p.Offence), err)
	}
	for _, plen := range []uint32{0, TermReqSize - 1, TermReqSize + MaxTermData + 1, 1<<32 - 1} {
		binary.LittleEndian.PutUint32(b[OffPLEN:], plen)
		if _, err := ParseTermReq(append(b, 0)); err == nil {
			t.Errorf("a terminate request of %d bytes parses", plen)
		}
	}
}

// TestNumbers: what a terminate request says, in numbers (sections 3.6.2.4 and 3.6.2.7).
func TestNumbers(t *testing.T) {
	for i, fes := range []FES{FESInvalidHeader, FESSequence, FESHeaderDigest, FESOutOfRange, FESLimitExceeded, FESUnsupportedParm} {
		if fes != FES(i+1) {
			t.Errorf("%v is %d, want %d", fes, fes, i+1)
		}
	}
	if OffCID != 8+12 {
		t.Errorf("the CID of a CapsuleResp is at %d, want 20", OffCID)
	}
}

// TestNames: every value that a peer may send has a readable name, even if it is undefined.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		of   fmt.Stringer
		want string
	}{
		{TypeICReq, "ICReq"}, {TypeR2T, "R2T"}, {Type(8), "PDU type 0x08"}, {Type(NumTypes), "PDU type 0x0a"}, {Type(255), "PDU type 0xff"},
		{FESInvalidHeader, "invalid PDU header field"}, {FESUnsupportedParm, "unsupported parameter"},
		{FES(7), "fatal error status 0x7"}, {FES(0xffff), "fatal error status 0xffff"},
		{Digests(0xfc), "none"}, {DigestHeader, "header"}, {DigestData | 4, "data"}, {allDigests, "header and data"},
	} {
		if got := c.of.String(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// FuzzParse parses arbitrary bytes as a PDU; a PDU that parses must append to bytes that parse to the same.
func FuzzParse(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(ICReq{Digests: DigestData}.Append(nil))
	f.Add(ICResp{MAXH2CDATA: 4096}.Append(nil))
	f.Add(TermReq{Type: TypeH2CTermReq, FES: 3, FEI: 9, Offence: []byte{1, 2}}.Append(nil))
	f.Add((&CapsuleCmd{Header: Header{TypeCapsuleCmd, 0, 72, 0, 72}}).Append(nil))
	f.Add((&CapsuleResp{Header: Header{TypeCapsuleResp, 0, 24, 0, 24}}).Append(nil))
	f.Add((&Data{Header: Header{TypeC2HData, 12, 24, 24, 1024}, DATAL: 1000}).Append(nil))
	f.Add((&R2T{Header: Header{TypeR2T, 0, 24, 0, 24}, R2TL: 5}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize {
			return
		}
		for _, self := range []Role{Host, Controller} {
			ru := Rules{Self: self, Ready: true}
			if h := HeaderAt(b); ru.Check(h) == nil && h.DataLen() < 0 {
				t.Fatalf("checked %+v has %d bytes of data", h, h.DataLen())
			}
		}
		first, err := reencode(b)
		if err != nil {
			return
		}
		second, err := reencode(first)
		if err != nil || !reflect.DeepEqual(first, second) {
			t.Fatalf("%v\n%x\n%x", err, first, second)
		}
	})
}
