package rdma

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// Private data as nvme-rdma and nvmet-rdma of Linux 6.12 put it into REQ (behind the 36 bytes
// of RDMA-CM) and REP, captured: the admin queue of 32 entries, and I/O queue 1 of controller 1.
var (
	linuxAdminRequest = unhex("000000002000 1f000000 00000000000000000000000000000000000000000000")
	linuxIORequest    = unhex("000001002000 1f000100 00000000000000000000000000000000000000000000")
	linuxAccept       = unhex("00002000 00000000000000000000000000000000000000000000000000000000")
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(s), []byte(" "), nil)))
	if err != nil {
		panic(err)
	}
	return b
}

func TestConnectRequest(t *testing.T) {
	for _, tc := range []struct {
		name string
		wire []byte
		want connectRequest
	}{
		{"admin", linuxAdminRequest, connectRequest{QID: 0, HRQSize: 32, HSQSize: 31}},
		{"io", linuxIORequest, connectRequest{QID: 1, HRQSize: 32, HSQSize: 31, CNTLID: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, status := parseConnectRequest(tc.wire)
			if status != 0 || got != tc.want {
				t.Fatalf("parsed %+v, status %d; want %+v", got, status, tc.want)
			}
			if out := got.bytes(); !bytes.Equal(out, tc.wire) {
				t.Fatalf("built %x, want %x", out, tc.wire)
			}
		})
	}
}

func TestConnectRequestRefused(t *testing.T) {
	if _, status := parseConnectRequest(linuxAdminRequest[:31]); status != RejectInvalidLength {
		t.Errorf("31 bytes: status %v, want %v", status, RejectInvalidLength)
	}
	bad := bytes.Clone(linuxAdminRequest)
	bad[0] = 1
	if _, status := parseConnectRequest(bad); status != RejectInvalidRecFmt {
		t.Errorf("RECFMT 1: status %v, want %v", status, RejectInvalidRecFmt)
	}
}

func TestConnectAccept(t *testing.T) {
	got, err := parseConnectAccept(linuxAccept)
	if err != nil || got.CRQSize != 32 {
		t.Fatalf("parsed %+v, %v; want CRQSize 32", got, err)
	}
	if out := got.bytes(); !bytes.Equal(out, linuxAccept) {
		t.Fatalf("built %x, want %x", out, linuxAccept)
	}
	other := bytes.Clone(linuxAccept)
	other[1] = 1
	for name, b := range map[string][]byte{"too short": linuxAccept[:3], "another RECFMT": other} {
		if got, err := parseConnectAccept(b); err == nil {
			t.Errorf("%s: parsed %+v", name, got)
		}
	}
}

func TestReject(t *testing.T) {
	wire := RejectInvalidHSQSize.bytes()
	if want := unhex("00000400"); !bytes.Equal(wire, want) {
		t.Fatalf("built %x, want %x", wire, want)
	}
	// The CM message carries 148 bytes, zero beyond what the sender gave.
	if s, ok := parseReject(append(wire, make([]byte, 144)...)); !ok || s != RejectInvalidHSQSize {
		t.Fatalf("parsed %v, %v", s, ok)
	}
	for name, b := range map[string][]byte{
		"without private data": make([]byte, 148), "too short": wire[:3], "another RECFMT": append([]byte{1}, wire[1:]...),
	} {
		if s, ok := parseReject(b); ok {
			t.Errorf("%s: read as %v", name, s)
		}
	}
	for s, want := range map[RejectStatus]string{0: "status 0", RejectInvalidCNTLID: "invalid controller identifier", 10: "status 10", 0xffff: "status 65535"} {
		if got := s.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func FuzzPrivateData(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(linuxAdminRequest)
	f.Add(linuxAccept)
	f.Fuzz(func(t *testing.T, b []byte) {
		if req, status := parseConnectRequest(b); status == 0 {
			again, status := parseConnectRequest(req.bytes())
			if status != 0 || again != req {
				t.Fatalf("%x: %+v became %+v", b, req, again)
			}
		}
		_, _ = parseConnectAccept(b)
		_, _ = parseReject(b)
	})
}
