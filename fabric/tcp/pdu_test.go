package tcp

import (
	"bytes"
	"encoding/hex"
	"errors"
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

// TestGolden compares each PDU with its bytes as the specification lays them out.
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
		{"CapsuleCmd", &CapsuleCmd{Header{TypeCapsuleCmd, FlagHDGST | FlagDDGST, 72, 76, 76 + 512 + 4}, cmd},
			"04 03 48 4c 50020000 02403412" + zeroes(59) + "ee"},
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
			if _, err := reencode(want[:len(want)-1]); err == nil {
				t.Error("a PDU without its last byte parses")
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
	if got := appendDigest(nil, ones); !bytes.Equal(got, unhex(t, "43aba862")) {
		t.Errorf("of 32 ones, on the wire: %x", got)
	}
}

// TestHeaderLayout checks PDO, PLEN and padding for every alignment that can be agreed.
func TestHeaderLayout(t *testing.T) {
	for align := 4; align <= 4*(MaxAlignment+1); align += 4 {
		for _, digests := range []Digests{0, DigestHeader, DigestData, DigestHeader | DigestData} {
			hd, dd := digests&DigestHeader != 0, digests&DigestData != 0
			p := CapsuleCmd{Header: Header{Type: TypeCapsuleCmd, HLEN: CapsuleCmdSize, PLEN: CapsuleCmdSize}}
			p.addDigest(hd)
			p.addData(512, align, dd)
			b := endHeader(p.Append(nil), 0, p.Header)
			if len(b) != int(p.PDO) || len(b) > maxCommandHeader || int(p.PDO)%align != 0 {
				t.Fatalf("align %d, digests %v: %d bytes up to the data, PDO %d", align, digests, len(b), p.PDO)
			}
			ru := rules{self: controllerRole, ready: true, headerDigest: hd, dataDigest: dd, align: align}
			if err := ru.check(p.Header); err != nil {
				t.Fatalf("align %d, digests %v: %v", align, digests, err)
			}
			if p.DataLen() != 512 {
				t.Fatalf("align %d, digests %v: DataLen %d", align, digests, p.DataLen())
			}
		}
	}
}

// TestCheck changes one thing at a time in a good header and expects the terminate request that
// the specification asks for.
func TestCheck(t *testing.T) {
	host := rules{self: hostRole, ready: true, align: 4}
	ctrl := rules{self: controllerRole, ready: true, align: 4}
	digests := rules{self: controllerRole, ready: true, headerDigest: true, dataDigest: true, align: 4}
	fresh := rules{self: controllerRole, align: 4}
	aligned := rules{self: controllerRole, ready: true, align: 16}
	tests := []struct {
		name string
		ru   rules
		h    Header
		fes  FES // 0: good
		fei  uint32
	}{
		{"ICReq", fresh, Header{TypeICReq, 0, 128, 0, 128}, 0, 0},
		{"ICReq PLEN", fresh, Header{TypeICReq, 0, 128, 0, 132}, FESInvalidHeader, offPLEN},
		{"ICReq HLEN", fresh, Header{TypeICReq, 0, 64, 0, 128}, FESInvalidHeader, offHLEN},
		{"ICReq digest", fresh, Header{TypeICReq, FlagHDGST, 128, 0, 128}, FESInvalidHeader, offFlags},
		{"second ICReq", ctrl, Header{TypeICReq, 0, 128, 0, 128}, FESSequence, 0},
		{"command before ICReq", fresh, Header{TypeCapsuleCmd, 0, 72, 0, 72}, FESSequence, 0},
		{"type 8", ctrl, Header{8, 0, 24, 0, 24}, FESInvalidHeader, offType},
		{"type 255", ctrl, Header{255, 0, 24, 0, 24}, FESInvalidHeader, offType},
		{"response to a controller", ctrl, Header{TypeCapsuleResp, 0, 24, 0, 24}, FESSequence, 0},
		{"command to a host", host, Header{TypeCapsuleCmd, 0, 72, 0, 72}, FESSequence, 0},
		{"command", ctrl, Header{TypeCapsuleCmd, 0, 72, 0, 72}, 0, 0},
		{"command with data", ctrl, Header{TypeCapsuleCmd, 0, 72, 72, 72 + 512}, 0, 0},
		{"command HLEN", ctrl, Header{TypeCapsuleCmd, 0, 71, 0, 72}, FESInvalidHeader, offHLEN},
		{"command PLEN", ctrl, Header{TypeCapsuleCmd, 0, 72, 0, 71}, FESInvalidHeader, offPLEN},
		{"command PDO in the header", ctrl, Header{TypeCapsuleCmd, 0, 72, 68, 600}, FESInvalidHeader, offPDO},
		{"command PDO odd", ctrl, Header{TypeCapsuleCmd, 0, 72, 74, 600}, FESInvalidHeader, offPDO},
		{"command PDO not aligned", aligned, Header{TypeCapsuleCmd, 0, 72, 72, 600}, FESInvalidHeader, offPDO},
		{"command PDO aligned", aligned, Header{TypeCapsuleCmd, 0, 72, 80, 600}, 0, 0},
		{"command PDO beyond", ctrl, Header{TypeCapsuleCmd, 0, 72, 200, 180}, FESInvalidHeader, offPLEN},
		{"command digest unasked", ctrl, Header{TypeCapsuleCmd, FlagHDGST, 72, 0, 76}, FESInvalidHeader, offFlags},
		{"command without digest", digests, Header{TypeCapsuleCmd, 0, 72, 0, 72}, FESInvalidHeader, offFlags},
		{"command data digest missing", digests, Header{TypeCapsuleCmd, FlagHDGST, 72, 76, 600}, FESInvalidHeader, offFlags},
		{"command with digests", digests, Header{TypeCapsuleCmd, FlagHDGST | FlagDDGST, 72, 76, 76 + 516}, 0, 0},
		{"command with digest, no data", digests, Header{TypeCapsuleCmd, FlagHDGST, 72, 0, 76}, 0, 0},
		{"data of nothing but its digest", digests, Header{TypeH2CData, FlagHDGST | FlagDDGST, 24, 28, 32}, FESInvalidHeader, offPLEN},
		{"H2CData without data", ctrl, Header{TypeH2CData, FlagLast, 24, 24, 24}, FESInvalidHeader, offPLEN},
		{"H2CData", ctrl, Header{TypeH2CData, FlagLast, 24, 24, 28}, 0, 0},
		{"response", host, Header{TypeCapsuleResp, 0, 24, 0, 24}, 0, 0},
		{"response with data", host, Header{TypeCapsuleResp, 0, 24, 24, 28}, FESInvalidHeader, offPLEN},
		{"R2T with data", host, Header{TypeR2T, 0, 24, 24, 28}, FESInvalidHeader, offPLEN},
		{"C2HTermReq", host, Header{TypeC2HTermReq, 0, 24, 0, 152}, 0, 0},
		{"C2HTermReq too long", host, Header{TypeC2HTermReq, 0, 24, 0, 153}, FESInvalidHeader, offPLEN},
		{"H2CTermReq before ICReq", fresh, Header{TypeH2CTermReq, 0, 24, 0, 24}, 0, 0},
	}
	for _, tt := range tests {
		err := tt.ru.check(tt.h)
		switch {
		case tt.fes == 0 && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.fes != 0 && (err == nil || err.FES != tt.fes || err.FEI != tt.fei):
			t.Errorf("%s: got %v, want FES %d FEI %d", tt.name, err, tt.fes, tt.fei)
		}
	}
}

// TestErrors checks what errors.Is and errors.As see.
func TestErrors(t *testing.T) {
	var err error = &ProtocolError{PDU: TypeH2CData, Cause: &FieldError{FESOutOfRange, 0, "DATAO"}}
	var fe *FieldError
	if !errors.Is(err, ErrProtocol) || !errors.As(err, &fe) || fe.FES != FESOutOfRange {
		t.Errorf("%v", err)
	}
	err = &ConnError{Stage: "receive", Err: &TerminatedError{FES: FESSequence}}
	if !errors.Is(err, ErrTerminated) {
		t.Errorf("%v", err)
	}
}

// FuzzPDU parses anything as a PDU; what parses must append to bytes that parse to the same.
func FuzzPDU(tf *testing.F) {
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
		for _, self := range []role{hostRole, controllerRole} {
			ru := rules{self: self, ready: true, align: 4}
			if h := headerAt(b); ru.check(h) == nil && h.DataLen() < 0 {
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
