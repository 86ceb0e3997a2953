package wire

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// icrcVectors are packets with their ICRC as the specification and hardware make it.
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
			if f.IPv6() {
				return
			}
			if got, id := f.Verify(b, 0); got != Recovered || id != v.id {
				t.Errorf("Verify without = %v, %#x", got, id)
			}
		})
	}
}
