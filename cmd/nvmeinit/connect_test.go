package main

import (
	"strings"
	"testing"
)

// TestPrintFound: what connect shows people.
func TestPrintFound(t *testing.T) {
	var out strings.Builder
	printFound(&out, &found{
		Transport: "tcp", Local: "192.0.2.9:50000", Remote: "192.0.2.1:4420", SubNQN: "nqn.2026-11.org.example:s",
		CNTLID: 7, Model: "example", Serial: "1234", Firmware: "1.0", Version: "2.0",
		Queues: 2, QueueSize: 128, MaxTransfer: 1 << 20, InCapsule: 8 << 10, KATO: 5, RoundTrip: 12.34,
		Namespaces: []foundNamespace{
			{NSID: 1, Size: 1 << 30, Block: 4096, UUID: "a603bd2e-b11d-8d24-b7b8-95dbe116670a"},
			{NSID: 2, Size: 1 << 20, Block: 512},
		},
	})
	const want = `connected to nqn.2026-11.org.example:s
  path        tcp, 192.0.2.9:50000 → 192.0.2.1:4420
  controller  7: example, serial 1234, firmware 1.0, NVMe 2.0
  queues      2 of 128 entries
  limits      1.0 MiB a command, 8.0 KiB of it in the capsule; keep alive 5s
  namespace   1: 1.0 GiB, blocks of 4096 bytes, UUID a603bd2e-b11d-8d24-b7b8-95dbe116670a
  namespace   2: 1.0 MiB, blocks of 512 bytes
  round trip  12.3 µs (median of 21 commands)
`
	if out.String() != want {
		t.Errorf("it says\n%swant\n%s", out.String(), want)
	}
	out.Reset()
	if printFound(&out, &found{}); !strings.Contains(out.String(), "; no keep alive\n") {
		t.Errorf("without keep alive it says\n%s", out.String())
	}
}
