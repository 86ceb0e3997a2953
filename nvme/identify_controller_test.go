package nvme

import (
	"encoding/binary"
	"errors"
	"testing"
)

func TestIdentifyControllerGolden(t *testing.T) {
	var p IdentifyController
	checkGolden(t, "identify-controller", &p)
	if err := p.Parse(golden(t, "identify-controller")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field     string
		got, want any
	}{
		{"MN", p.ModelNumber(), "Linux"},
		{"CNTLID", p.CNTLID, uint16(1)},
		{"VER", p.VER, Version1_3},
		{"CMIC", p.CMIC, CMICMultiPort | CMICMultiCtrl | CMICANA},
		{"OAES", p.OAES, AENNamespace | AENANA},
		{"LPA", p.LPA & LPAEffects, LPAEffects},
		{"KAS", p.KAS, uint16(10)},
		{"SQES", p.SQES, uint8(0x66)},
		{"CQES", p.CQES, uint8(0x44)},
		{"NQN", p.NQN(), "nqn.2026-01.lab:golden"},
		{"ICDOFF", p.ICDOFF, uint16(0)},
		{"InCapsule", p.InCapsule(), 16384},
		{"CNTRLTYPE", p.CNTRLTYPE, ControllerIO},
		{"VWC", p.VWC & VWCPresent, VWCPresent},
	} {
		if c.got != c.want {
			t.Errorf("%s = %v, want %v", c.field, c.got, c.want)
		}
	}
	var d IdentifyController
	checkGolden(t, "discovery-identify-controller", &d)
	if d.NQN() != DiscoveryNQN || d.CNTRLTYPE != ControllerDiscovery {
		t.Errorf("discovery controller: NQN %q, type %v", d.NQN(), d.CNTRLTYPE)
	}
}

// TestIdentifyControllerOffsets pins the offset of each field that host or target relies on to
// the one in the specification's figure.
func TestIdentifyControllerOffsets(t *testing.T) {
	var p IdentifyController
	p.VID, p.CMIC, p.MDTS, p.CNTLID, p.VER = 0x1111, 0x22, 0x33, 0x4444, 0x55555555
	p.RTD3E, p.OAES, p.CTRATT, p.CNTRLTYPE, p.CRDT1 = 1, 2, 3, 4, 5
	p.OACS, p.ACL, p.AERL, p.LPA, p.ELPE, p.NPSS, p.WCTEMP = 6, 7, 8, 9, 10, 11, 12
	p.TNVMCAP, p.KAS, p.ANATT, p.ANACAP, p.ANAGRPMAX, p.NANAGRPID = Uint128From(13), 14, 15, 16, 17, 18
	p.MAXCMD, p.NN, p.ONCS, p.FNA, p.VWC, p.ACWU, p.SGLS, p.MNAN = 19, 20, 21, 22, 23, 24, 25, 26
	p.IOCCSZ, p.IORCSZ, p.ICDOFF, p.FCATT, p.MSDBD, p.OFCS, p.DCTYPE = 27, 28, 29, 30, 31, 32, 33
	p.PSD[0].MP, p.PSD[1].ENLAT, p.SUBNQN[0], p.VendorSpecific[0] = 34, 35, 36, 37
	p.CRCAP, p.KPIOC, p.MPTFAWR, p.MEGCAP, p.TMPTHHA, p.CQT = 38, 39, 40, Uint128From(41), 42, 43
	p.OAQD, p.RHIRI, p.HIRT, p.CMMRTD, p.NMMRTD, p.MINMRTG, p.MAXMRTG = 44, 45, 46, 47, 48, 49, 50
	p.TRATTR, p.MCUDMQ, p.MNSUDMQ, p.MCMR, p.NMCMR, p.MCDQPC = 51, 52, 53, 54, 55, 56
	p.PSD[0].EPFRT, p.PSD[0].FQVT, p.PSD[0].EPFVT, p.PSD[0].EPFRFQVTS, p.PSD[0].EPFVTS = 57, 58, 59, 60, 61
	b := p.AppendTo(nil)
	for _, c := range []struct {
		off, size int
		want      uint64
	}{
		{0, 2, 0x1111}, {76, 1, 0x22}, {77, 1, 0x33}, {78, 2, 0x4444}, {80, 4, 0x55555555}, {88, 4, 1}, {92, 4, 2}, {96, 4, 3},
		{111, 1, 4}, {128, 2, 5}, {256, 2, 6}, {258, 1, 7}, {259, 1, 8}, {261, 1, 9}, {262, 1, 10}, {263, 1, 11}, {266, 2, 12},
		{280, 8, 13}, {320, 2, 14}, {342, 1, 15}, {343, 1, 16}, {344, 4, 17}, {348, 4, 18}, {514, 2, 19}, {516, 4, 20}, {520, 2, 21},
		{524, 1, 22}, {525, 1, 23}, {532, 2, 24}, {536, 4, 25}, {540, 4, 26}, {768, 1, 36}, {1792, 4, 27}, {1796, 4, 28}, {1800, 2, 29},
		{1802, 1, 30}, {1803, 1, 31}, {1804, 2, 32}, {1806, 1, 33}, {2048, 2, 34}, {2080 + 4, 4, 35}, {3072, 1, 37},
		{134, 1, 38}, {358, 1, 39}, {360, 2, 40}, {368, 8, 41}, {384, 1, 42}, {386, 2, 43}, {564, 4, 44}, {568, 1, 45}, {569, 1, 46},
		{570, 2, 47}, {572, 2, 48}, {574, 1, 49}, {575, 1, 50}, {576, 1, 51}, {578, 2, 52}, {580, 2, 53}, {582, 2, 54}, {584, 2, 55},
		{586, 2, 56}, {2048 + 23, 1, 57}, {2048 + 24, 1, 58}, {2048 + 25, 1, 59}, {2048 + 26, 1, 60}, {2048 + 27, 1, 61},
	} {
		var v [8]byte
		copy(v[:], b[c.off:c.off+c.size])
		if got := binary.LittleEndian.Uint64(v[:]); got != c.want {
			t.Errorf("offset %d holds %#x, want %#x", c.off, got, c.want)
		}
	}
}

func TestIdentifyControllerLimits(t *testing.T) {
	for mdts, want := range map[uint8]int{0: 0, 1: 8192, 8: 1 << 20, 255: 0} {
		if got := (&IdentifyController{MDTS: mdts}).MaxTransfer(); got != want {
			t.Errorf("MDTS %d: %d bytes, want %d", mdts, got, want)
		}
	}
	for ioccsz, want := range map[uint32]int{0: 0, 4: 0, 5: 16, 260: 4096, 1<<32 - 1: MaxKeyedLength &^ 15} {
		if got := (&IdentifyController{IOCCSZ: ioccsz}).InCapsule(); got != want {
			t.Errorf("IOCCSZ %d: %d bytes, want %d", ioccsz, got, want)
		}
	}
	if err := new(IdentifyController).Parse(make([]byte, 4095)); !errors.Is(err, ErrShort) {
		t.Errorf("4095 bytes: %v", err)
	}
}

func FuzzIdentifyController(f *testing.F) {
	fuzzPage[*IdentifyController](f, "identify-controller", "discovery-identify-controller")
}
