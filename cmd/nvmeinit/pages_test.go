package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// captured reads a page of Linux's target into p; nvme/testdata/README.md tells its origin.
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

// TestPages: the pages of Linux's target are printed as testdata has them, by the names and kinds of value of nvme-cli.
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
	}
}

// TestANALog: so is the ANA log, which has one group; a second one here can't be reached.
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

// TestDiscoveryJSON: so is the discovery log.
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
