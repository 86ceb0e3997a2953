package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// captured reads a page of Linux's target into p; nvme/testdata/README.md describes its origin.
func captured(t *testing.T, name string, p interface{ Parse(b []byte) error }) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../nvme/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Parse(b); err != nil {
		t.Fatal(err)
	}
}

// TestPages: the pages of Linux's target are printed as in testdata, with nvme-cli's names and kinds of values.
func TestPages(t *testing.T) {
	var ctrl nvme.IdentifyController
	var ns nvme.IdentifyNamespace
	var smart nvme.SMARTLog
	captured(t, "identify-controller.bin", &ctrl)
	captured(t, "identify-namespace.bin", &ns)
	captured(t, "log-smart.bin", &smart)
	smart.Sensors[1] = 300
	for name, fs := range map[string][]field{
		"id-ctrl": controllerFields(&ctrl), "id-ns": namespaceFields(&ns), "smart-log": smartFields(&smart),
	} {
		for format, suffix := range map[cli.Format]string{cli.Normal: ".txt", cli.JSON: ".json"} {
			var b bytes.Buffer
			if err := printFields(&b, format, fs); err != nil {
				t.Fatal(err)
			}
			golden(t, name+suffix, b.Bytes())
		}
		var b, asJSON bytes.Buffer
		human := (&connFlags{decode: true}).decoded(fs)
		if err := errors.Join(printFields(&b, cli.Normal, human), printFields(&asJSON, cli.JSON, human)); err != nil {
			t.Fatal(err)
		}
		golden(t, name+"-human.txt", b.Bytes())
		golden(t, name+".json", asJSON.Bytes())
	}
}

// TestMembers: the JSON has every member that nvme-cli 2.13 prints of a page, in its order.
func TestMembers(t *testing.T) {
	ns := &nvme.IdentifyNamespace{NSFEAT: nvme.NSFEATOptPerf}
	var states []object
	for _, f := range controllerFields(&nvme.IdentifyController{SUBNQN: [256]byte{'n'}}) {
		if f.name == "psds" {
			states = f.value.([]object)
		}
	}
	for name, c := range map[string]struct {
		fields []field
		want   string
	}{
		"id-ctrl": {controllerFields(&nvme.IdentifyController{SUBNQN: [256]byte{'n'}}), `vid ssvid sn mn fr rab ieee cmic mdts
			cntlid ver rtd3r rtd3e oaes ctratt rrls bpcap nssl plsi cntrltype fguid crdt1 crdt2 crdt3 crcap nvmsr vwci mec oacs
			acl aerl frmw lpa elpe npss avscc apsta wctemp cctemp mtfa hmpre hmmin tnvmcap unvmcap rpmbs edstt dsto fwug kas
			hctma mntmt mxtmt sanicap hmminds hmmaxd nsetidmax endgidmax anatt anacap anagrpmax nanagrpid pels domainid kpioc
			mptfawr megcap tmpthha cqt sqes cqes maxcmd nn oncs fuses fna vwc awun awupf icsvscc nwpc acwu ocfs sgls mnan
			maxdna maxcna oaqd rhiri hirt cmmrtd nmmrtd minmrtg maxmrtg trattr mcudmq mnsudmq mcmr nmcmr mcdqpc subnqn ioccsz
			iorcsz icdoff fcatt msdbd ofcs psds`},
		"psds": {states[0], `max_power max_power_scale non-operational_state entry_lat exit_lat read_tput read_lat write_tput
			write_lat idle_power idle_scale active_power active_power_work active_scale emerg_power_fail_recover_time
			emerg_power_fail_recover_scale force_quiesce_vault_time force_quiesce_vault_scale emerg_power_fail_vault_time
			emerg_power_fail_vault_scale`},
		"id-ns": {namespaceFields(ns), `nsze ncap nuse nsfeat nlbaf flbas mc dpc dps nmic rescap fpi dlfeat nawun nawupf nacwu
			nabsn nabo nabspf noiob nvmcap npwg npwa npdg npda nows mssrl mcl msrc kpios nulbaf kpiodaag anagrpid nsattr
			nvmsetid endgid nguid eui64 lbafs vs`},
		"nvm-id-ctrl":      {fields(&nvme.IdentifyControllerNVM{}), `vsl wzsl wusl dmrl dmrsl dmsl kpiocap wzdsl aocs ver lbamqf`},
		"cmdset-ind-id-ns": {fields(&nvme.IdentifyNamespaceIndependent{}), `nsfeat nmic rescap fpi anagrpid nsattr nvmsetid endgid nstat kpios maxkt rgrpid`},
	} {
		rest := c.fields
		for _, want := range strings.Fields(c.want) {
			i := slices.IndexFunc(rest, func(f field) bool { return f.name == want && f.value != nil })
			if i < 0 {
				t.Errorf("%s: no %s at its place", name, want)
				continue
			}
			rest = rest[i+1:]
		}
	}
	scales := powerState(&nvme.PowerState{EPFRT: 1, EPFRFQVTS: 0x32, FQVT: 4, EPFVT: 5, EPFVTS: 6})
	for i, want := range []uint8{1, 2, 4, 3, 5, 6} {
		if f := scales[len(scales)-6+i]; f.value != want {
			t.Errorf("%s is %v, want %d", f.name, f.value, want)
		}
	}
}

// TestVendorText: the vendor's bytes are text up to a zero, as with nvme-cli, in rows.
func TestVendorText(t *testing.T) {
	for text, want := range map[string]string{
		"": "[]", "\x00abc": "[]", "a b\xff~!\x00c": `["a.b.~!"]`, "0123456789abcdef": `["0123456789abcdef"]`,
		"0123456789abcdefg": `["0123456789abcdef" "g"]`,
	} {
		if got := fmt.Sprintf("%q", vendorText([]byte(text))); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	page := []byte("a b")
	if _ = vendorText(page); string(page) != "a b" {
		t.Errorf("the page is now %q", page)
	}
}

// TestOptimalPerformance: the fields that OPTPERF, bits 5:4 of NSFEAT, says are defined are shown, and only these.
func TestOptimalPerformance(t *testing.T) {
	for optperf, want := range []string{"", "npwg npwa npdg npda nows", "npwg npwa npda nows", "npwg npwa npdg npda nows"} {
		var shown []string
		for _, f := range namespaceFields(&nvme.IdentifyNamespace{NSFEAT: nvme.NSFEAT(optperf) << 4}) {
			switch f.name {
			case "npwg", "npwa", "npdg", "npda", "nows":
				shown = append(shown, f.name)
			}
		}
		if got := strings.Join(shown, " "); got != want {
			t.Errorf("OPTPERF %02b: it shows %q, want %q", optperf, got, want)
		}
	}
}

// TestANALog: the ANA log of Linux's target, which has one group, is printed as in testdata, with a second group that is
// inaccessible.
func TestANALog(t *testing.T) {
	var log nvme.ANALog
	captured(t, "log-ana.bin", &log)
	log.Groups = append(log.Groups, nvme.ANAGroup{ID: 3, ChangeCount: 2, State: nvme.ANAPersistentLoss, NSIDs: nvme.NSIDList{2, 7}})
	for format, suffix := range map[cli.Format]string{cli.Normal: ".txt", cli.JSON: ".json"} {
		var b bytes.Buffer
		if err := printANA(&b, format, "nqn.2026-11.org.example:a", &log); err != nil {
			t.Fatal(err)
		}
		golden(t, "ana-log"+suffix, b.Bytes())
	}
}

// TestViews: pages with lists are shown as tables, and in JSON with nvme-cli's names.
func TestViews(t *testing.T) {
	host := nvme.HostID{0x6e, 0x7f, 0x2a, 0x0e, 15: 1}
	const ms = 1_795_339_601_790
	for name, v := range map[string]*view{
		"error-log": errorView([]nvme.ErrorEntry{
			{Count: 2, SQID: 1, CID: 17, StatusPhase: uint16(nvme.StatusLBAOutOfRange)<<1 | 1, Location: 40, LBA: 1 << 40, NSID: 1, TRTYPE: nvme.TransportTCP},
			{Count: 1, StatusPhase: uint16(nvme.StatusInvalidField) << 1, Location: 0xffff},
		}),
		"resv-report": reservationView(&nvme.ResvStatus{Generation: 3, Type: nvme.ResvWriteExclusive, Persist: true, Registrants: []nvme.ResvRegistrant{
			{CNTLID: 1, Holder: true, Key: 0xabc, HostID: host}, {CNTLID: nvme.CNTLIDDynamic, Key: 1},
		}}),
		"ns-descs": descriptorView(&nvme.NSDescriptors{NGUID: [16]byte{1, 15: 2}, UUID: [16]byte(host), HasCSI: true}),
		"persistent-event-log": persistentView(
			&nvme.PersistentLogHeader{LID: nvme.LogPersistent, Events: 9, Length: 1072, Revision: 3, HeaderLength: 492, Timestamp: ms, PowerCycles: 2},
			[]nvme.PersistentEvent{
				event(nvme.PersistentPowerOn, &nvme.PowerOnEvent{Firmware: [8]byte{'1', '.', '0'}, PowerCycle: 2}),
				event(nvme.PersistentTimestamp, &nvme.TimestampChangeEvent{Previous: ms}),
				event(nvme.PersistentNamespace, &nvme.ChangeNamespaceEvent{CDW10: 1, NSID: 513}),
				event(nvme.PersistentNamespace, &nvme.ChangeNamespaceEvent{CDW10: 1, NSID: nvme.NSIDAll}),
				event(nvme.PersistentFormatStart, &nvme.FormatStartEvent{NSID: 1}),
				event(nvme.PersistentFormatEnd, &nvme.FormatEndEvent{NSID: 1, Failed: 1, StatusPhase: uint16(nvme.StatusInternalError) << 1}),
				event(nvme.PersistentSanitize, &nvme.SanitizeStartEvent{CDW10: 2}),
				event(nvme.PersistentSanitizeEnd, &nvme.SanitizeEndEvent{SSTAT: nvme.SanitizeDone}),
				{Type: 0xde, Timestamp: ms, Data: make([]byte, 5)},
			}),
		"error-log-none": errorView(nil),
	} {
		for format, suffix := range map[cli.Format]string{cli.Normal: ".txt", cli.JSON: ".json"} {
			var b bytes.Buffer
			if err := v.print(&b, format); err != nil {
				t.Fatal(err)
			}
			golden(t, name+suffix, b.Bytes())
		}
	}
}

// event returns an event of the Persistent Event log.
func event(kind nvme.PersistentEventType, data any) nvme.PersistentEvent {
	return nvme.PersistentEvent{Type: kind, Revision: 1, Timestamp: 1_795_339_601_790, CNTLID: 7, Data: nvme.PersistentData(data)}
}

// TestSanitizeLog: while an operation runs, its progress is shown.
func TestSanitizeLog(t *testing.T) {
	var b bytes.Buffer
	log := nvme.SanitizeLog{SPROG: 1 << 15, SSTAT: nvme.SanitizeInProgress.WithPasses(1), SCDW10: 3, OverwriteTime: 90, BlockEraseTime: 0xffffffff}
	if err := printFields(&b, cli.Normal, sanitizeFields(&log)); err != nil {
		t.Fatal(err)
	}
	golden(t, "sanitize-log.txt", b.Bytes())
}

// TestShownText: text is shown as it is, and bytes that aren't printable ASCII in hexadecimal; a namespace without a UUID
// has no text for it.
func TestShownText(t *testing.T) {
	for in, want := range map[string]string{" !~": " !~", "a\x7f": "617f", "a\x1f": "611f"} {
		if shown, value := showBytes("MN", []byte(in)); shown != want || value != any(want) {
			t.Errorf("%q is shown as %q, in JSON %q, want %q", in, shown, value, want)
		}
	}
	n := new(host.Namespace)
	if text := uuidText(n); text != "" {
		t.Errorf("no UUID is shown as %q", text)
	}
	n.Descriptors.UUID[15] = 1
	if text := uuidText(n); text != "00000000-0000-0000-0000-000000000001" {
		t.Errorf("a UUID is shown as %q", text)
	}
}

// TestNoCommands: a log that names no command, as a controller may have, is said to do so, and is valid JSON.
func TestNoCommands(t *testing.T) {
	for format, want := range map[cli.Format]string{
		cli.Normal: "no commands", cli.JSON: `[{"command_set_identifier":0,"admin_cmd_set":{},"io_cmd_set":{}}]`,
	} {
		var b bytes.Buffer
		if err := printEffects(&b, format, &nvme.EffectsLog{}); err != nil {
			t.Fatal(err)
		}
		got := strings.TrimSpace(b.String())
		if format == cli.JSON {
			var compact bytes.Buffer
			if err := json.Compact(&compact, b.Bytes()); err != nil {
				t.Fatal(err)
			}
			got = compact.String()
		}
		if got != want {
			t.Errorf("%v: %s, want %s", format, got, want)
		}
	}
}

// TestStatusMeaning: CSTS is put into words by its fields: RDY, CFS and SHST.
func TestStatusMeaning(t *testing.T) {
	for csts, want := range map[uint64]string{
		0: "0x0 (not ready)", 1: "0x1 (ready)", 1 << 1: "0x2 (not ready, fatal)", 1<<1 | 1: "0x3 (ready, fatal)",
		1<<2 | 1: "0x5 (ready, shutting down)", 2<<2 | 1: "0x9 (ready, shut down)", 2<<2 | 1<<1: "0xa (not ready, fatal, shut down)",
	} {
		if got := propertyField(nvme.PropCSTS, csts); got.text != want {
			t.Errorf("%q, want %q", got.text, want)
		}
	}
}

// TestReservedNames: the values of TSAS that are reserved have nvme-cli's name for such values.
func TestReservedNames(t *testing.T) {
	for v, want := range map[uint8]string{0: "unrecognized", nvme.RDMACMS: "rdma-cm", nvme.RDMACMS + 1: "unrecognized", 0xff: "unrecognized"} {
		if got := nameOf(rdmaCMs[:], v); got != want {
			t.Errorf("CMS %d is %q, want %q", v, got, want)
		}
	}
}

// TestDiscoveryJSON: the same for the discovery log.
func TestDiscoveryJSON(t *testing.T) {
	b, err := os.ReadFile("../../nvme/testdata/log-discovery.bin")
	if err != nil {
		t.Fatal(err)
	}
	var h nvme.DiscoveryHeader
	if err := h.Parse(b); err != nil {
		t.Fatal(err)
	}
	log := host.DiscoveryLog{Generation: h.GENCTR, Entries: make([]nvme.DiscoveryEntry, h.NUMREC)}
	for i := range log.Entries {
		b = b[nvme.DiscoveryEntrySize:]
		if err := log.Entries[i].Parse(b); err != nil {
			t.Fatal(err)
		}
	}
	rdma := nvme.DiscoveryEntry{
		TRTYPE: nvme.TransportRDMA, ADRFAM: nvme.FamilyIPv4, SUBTYPE: nvme.SubsystemReferral, TREQ: nvme.TREQSecureRequired,
		EFLAGS: nvme.EFLAGSPersistent | nvme.EFLAGSDuplicate,
		TSAS:   nvme.TSASRDMA{QPType: nvme.RDMAQPConnected, Provider: nvme.RDMAProviderRoCE2, CMS: nvme.RDMACMS, PKey: 0xffff}.Bytes(),
	}
	log.Entries = append(log.Entries, rdma)
	var out bytes.Buffer
	if err := cli.PrintJSON(&out, discoveryJSON(&log)); err != nil {
		t.Fatal(err)
	}
	golden(t, "discover.json", out.Bytes())
}

// golden compares with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v; printed was\n%s", name, err, got)
	}
	if filepath.Ext(name) == ".json" && !json.Valid(got) {
		t.Errorf("%s: not JSON", name)
	}
}
