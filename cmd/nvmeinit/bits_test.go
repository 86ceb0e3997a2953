package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestBitTables: the parts of a field are inside it, from the highest to the lowest, and don't overlap; and each value
// that a part has in words fits.
func TestBitTables(t *testing.T) {
	check := func(name string, width int, table []part) {
		t.Helper()
		above := width
		for _, p := range table {
			if p.high >= above || p.low > p.high || p.low < 0 || len(p.values) > 1<<(p.high-p.low+1) {
				t.Errorf("%s: [%d:%d] %s: bits from %d on are taken, %d values", name, p.high, p.low, p.name, above, len(p.values))
			}
			above = p.low
		}
	}
	widths := map[string]int{"critical_warning": 8, "endurance_grp_critical_warning_summary": 8,
		activeSlot: 8, "sstat": 16, "cdw10_info": 32}
	for _, page := range []any{nvme.IdentifyController{}, nvme.IdentifyNamespace{}, nvme.IdentifyNamespaceIndependent{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(page)) {
			widths[strings.ToLower(f.Name)] = int(f.Type.Size()) * 8
		}
	}
	widths["ocfs"] = widths["cdfs"]
	for _, p := range []nvme.Property{nvme.PropCAP, nvme.PropVS, nvme.PropCC, nvme.PropCSTS, nvme.PropCRTO} {
		widths[strings.ToLower(p.String())] = p.Size() * 8
	}
	for name, table := range pageBits {
		check(name, widths[name], table)
	}
	for name, table := range independentBits {
		check(name, widths[name], table)
	}
	for id, table := range featureBits {
		check(id.String(), 32, table)
	}
}

// TestBits: fields that the specification composes of these parts are taken apart into them.
func TestBits(t *testing.T) {
	for _, c := range []struct {
		field string
		value uint64
		set   string // the parts that aren't 0
	}{
		{"cmic", uint64(nvme.CMICANA | nvme.CMICMultiPort), "[3:3] 0x1 Asymmetric Namespace Access Reporting, [0:0] 0x1 Multiple Ports"},
		{"oacs", uint64(nvme.OACSFormat | nvme.OACSNSManagement),
			"[3:3] 0x1 Namespace Management and Namespace Attachment, [1:1] 0x1 Format NVM"},
		{"oncs", uint64(nvme.ONCSCopy | nvme.ONCSVerify | nvme.ONCSCompare), "[8:8] 0x1 Copy, [7:7] 0x1 Verify, [0:0] 0x1 Compare"},
		{"oncs", uint64(nvme.ONCSReservations | nvme.ONCSWriteUncorrectable), "[5:5] 0x1 Reservations, [1:1] 0x1 Write Uncorrectable"},
		{"sgls", uint64(nvme.SGLSKeyed | nvme.SGLSDwordAligned), "[2:2] 0x1 Keyed SGL Data Block Descriptor, [1:0] 0x2 SGL Support: aligned to dwords"},
		{"vwc", uint64(nvme.VWCPresent | nvme.VWCFlushOne), "[2:1] 0x2 Flush of NSID FFFFFFFFh: not supported, [0:0] 0x1 Volatile Write Cache Present"},
		{"sanicap", nvme.SANICAPCrypto | nvme.SANICAPUnmodified,
			"[31:30] 0x1 No-Deallocate Modifies Media After Sanitize: media is not modified, [0:0] 0x1 Crypto Erase"},
		{"flbas", 0x33, "[6:5] 0x1 Format Index, upper bits, [4:4] 0x1 Metadata at the End of LBA, [3:0] 0x3 Format Index, lower bits"},
		{"rescap", uint64(nvme.RESCAPPersist | nvme.RESCAPIgnoreKey), "[7:7] 0x1 Ignore Existing Key as of NVMe 1.3, [0:0] 0x1 Persist Through Power Loss"},
		{"cap", 0x3f<<24 | uint64(nvme.CAPCRWMS|nvme.CAPNVM), "[59:59] 0x1 Controller Ready With Media, [37:37] 0x1 NVM Command Set, [31:24] 0x3f Timeout, 500 ms"},
		{"cc", uint64(nvme.CCFabrics | nvme.CCSHNAbrupt | nvme.CCEnable), "[23:20] 0x4 I/O Completion Queue Entry Size, 2^n bytes, " +
			"[19:16] 0x6 I/O Submission Queue Entry Size, 2^n bytes, [15:14] 0x2 Shutdown Notification: abrupt, [0:0] 0x1 Enable"},
		{"csts", uint64(nvme.CSTSShutdownComplete | nvme.CSTSFatal), "[3:2] 0x2 Shutdown Status: complete, [1:1] 0x1 Controller Fatal Status"},
		// The OPTPERF of NVM command set 1.1 has two bits, and 10b says nothing of NPDG.
		{"nsfeat", 0xa0, "[7:7] 0x1 Optimal Read Performance: NPRG, NPRA and NORS are defined, " +
			"[5:4] 0x2 Optimal Performance: NPWG, NPWA, NPDGL, NPDA and NOWS are defined"},
		{"oaes", 1<<19 | 1<<8, "[19:19] 0x1 Allocated Namespace Attribute Notices, [8:8] 0x1 Attached Namespace Attribute Notices"},
		{activeSlot, 0x21, "[6:4] 0x2 Next Active Firmware Slot, 0 none, [2:0] 0x1 Active Firmware Slot"},
		{"sstat", 0x101 | 3<<3, "[8:8] 0x1 Global Data Erased, [7:3] 0x3 Overwrite Passes Completed, " +
			"[2:0] 0x1 Sanitize Operation Status: completed"},
		{"cdw10_info", nvme.SanitizeNDAS | 2<<4 | uint64(nvme.SanitizeOverwrite), "[9:9] 0x1 No-Deallocate After Sanitize, " +
			"[7:4] 0x2 Overwrite Pass Count, 0 for 16, [2:0] 0x3 Sanitize Action: overwrite"},
		{"critical_warning", uint64(nvme.WarnBackup | nvme.WarnSpare), "[4:4] 0x1 Volatile Memory Backup Failed, [0:0] 0x1 Available Spare Below Threshold"},
	} {
		if got := nonZero(parts(pageBits[c.field], c.value)); got != c.set {
			t.Errorf("%s %#x:\n %s, want\n %s", c.field, c.value, got, c.set)
		}
	}
	// NSFEAT of the I/O Command Set Independent Identify Namespace page has other bits than that of Identify Namespace.
	const independent = "[5:5] 0x1 Volatile Write Cache Not Present, [4:4] 0x1 Rotational Media"
	if got := nonZero(parts(independentBits["nsfeat"], 0x30)); got != independent {
		t.Errorf("nsfeat of every command set:\n %s, want\n %s", got, independent)
	}
	const want = "[11:11] 0x1 Asymmetric Namespace Access Change Notices, [10:10] 0x1 Telemetry Log Notices, [9:9] 0x1 Firmware Activation Notices, " +
		"[1:1] 0x1 Temperature Beyond Threshold"
	if got := nonZero(parts(featureBits[nvme.FeatAsyncEvent], 0xe02)); got != want {
		t.Errorf("feature 0Bh:\n %s, want\n %s", got, want)
	}
}

// nonZero lists the parts that aren't 0.
func nonZero(fs []field) string {
	fs = slices.DeleteFunc(fs, func(f field) bool { return strings.HasPrefix(f.text, "0x0 ") })
	var all []string
	for _, f := range fs {
		all = append(all, strings.Join(strings.Fields(fmt.Sprint(f.name, " ", f.text)), " "))
	}
	return strings.Join(all, ", ")
}
