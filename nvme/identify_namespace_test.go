package nvme

import "testing"

func TestIdentifyNamespaceGolden(t *testing.T) {
	var p IdentifyNamespace
	checkGolden(t, "identify-namespace", &p)
	if p.NSZE != 0x4000 || p.NCAP != 0x4000 || p.BlockSize() != 4096 || p.NMIC != NMICShared || p.ANAGRPID != 1 {
		t.Errorf("got NSZE %d, NCAP %d, block size %d, NMIC %d, ANAGRPID %d", p.NSZE, p.NCAP, p.BlockSize(), p.NMIC, p.ANAGRPID)
	}
	if p.NSFEAT != NSFEATAtomic|NSFEATOptPerf {
		t.Errorf("NSFEAT %#x", p.NSFEAT)
	}
}

func TestIdentifyNamespaceFormat(t *testing.T) {
	p := IdentifyNamespace{NLBAF: 1, FLBAS: 1}
	p.LBAF[0], p.LBAF[1] = LBAFormat{LBADS: 12}, LBAFormat{LBADS: 9, MS: 8}
	if p.BlockSize() != 512 || p.MetadataSize() != 8 {
		t.Errorf("block %d, metadata %d", p.BlockSize(), p.MetadataSize())
	}
	// With more than 16 formats, bits 6:5 of FLBAS extend the index.
	p.NLBAF, p.FLBAS = 20, 0x21
	p.LBAF[17] = LBAFormat{LBADS: 12}
	if p.Format() != 17 || p.BlockSize() != 4096 {
		t.Errorf("format %d, block %d", p.Format(), p.BlockSize())
	}
	for _, ds := range []uint8{0, 8, 25, 255} {
		p.LBAF[17].LBADS = ds
		if p.BlockSize() != 0 {
			t.Errorf("LBADS %d gives block size %d", ds, p.BlockSize())
		}
	}
}

// TestFormats: bits 6:5 of FLBAS count if there are more than 16 formats, those of unique attributes included (NVM command
// set 1.1, figure 114 and section 5.5).
func TestFormats(t *testing.T) {
	for _, c := range []struct {
		nlbaf, nulbaf, flbas uint8
		formats, index       int
	}{
		{0, 0, 0x60, 1, 0}, {15, 0, 0x21, 16, 1}, {16, 0, 0x20, 17, 16}, {9, 6, 0x21, 16, 1}, {9, 7, 0x20, 17, 16},
		{63, 0, 0x6f, 64, 63}, {255, 255, 0x6f, 64, 63},
	} {
		p := IdentifyNamespace{NLBAF: c.nlbaf, NULBAF: c.nulbaf, FLBAS: c.flbas}
		if n := len(p.Formats()); n != c.formats || p.Format() != c.index {
			t.Errorf("NLBAF %d, NULBAF %d, FLBAS %#x: format %d of %d, want %d of %d", c.nlbaf, c.nulbaf, c.flbas, p.Format(), n, c.index, c.formats)
		}
	}
}

func TestIdentifyNamespaceIndependent(t *testing.T) {
	p := IdentifyNamespaceIndependent{NMIC: NMICShared, ANAGRPID: 0x01020304, NSATTR: NSATTRWriteProtected, NSTAT: NSTATReady, KPIOS: 5, MAXKT: 6, RGRPID: 7}
	b := p.AppendTo(nil)
	if len(b) != PageSize || b[1] != 1 || b[4] != 4 || b[7] != 1 || b[8] != 1 || b[14] != 1 || b[15] != 5 || b[16] != 6 || b[20] != 7 {
		t.Errorf("page % x", b[:24])
	}
}

// TestKeyPerIO: the fields of keys per I/O, and those of the NVM command set's page behind its limits, are where NVM
// command set 1.1 has them.
func TestKeyPerIO(t *testing.T) {
	ns := IdentifyNamespace{KPIOS: 1, NULBAF: 2, KPIODAAG: 3, ANAGRPID: 4}
	if b := ns.AppendTo(nil); b[81] != 1 || b[82] != 2 || b[84] != 3 || b[92] != 4 {
		t.Errorf("namespace % x", b[80:96])
	}
	ctrl := IdentifyControllerNVM{DMSL: 1, KPIOCAP: 2, WZDSL: 3, AOCS: 4, VER: 5, LBAMQF: 6}
	if b := ctrl.AppendTo(nil); b[8] != 1 || b[16] != 2 || b[17] != 3 || b[18] != 4 || b[20] != 5 || b[24] != 6 {
		t.Errorf("controller % x", b[:32])
	}
}

func FuzzIdentifyNamespace(f *testing.F) { fuzzPage[*IdentifyNamespace](f, "identify-namespace") }

func FuzzIdentifyNamespaceIndependent(f *testing.F) {
	fuzzPage[*IdentifyNamespaceIndependent](f, "identify-namespace")
}
