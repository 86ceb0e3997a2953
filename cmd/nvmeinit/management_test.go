package main

import (
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestUnavailableFormats: an LBA format whose LBADS is 0 isn't available, and below 9 or beyond any block it means
// nothing (NVM command set, figure "LBA Format Data Structure"): a namespace isn't created with one, whatever the target
// lists.
func TestUnavailableFormats(t *testing.T) {
	id := nvme.IdentifyNamespace{NLBAF: 4}
	for i, lbads := range []uint8{12, 0, 3, 63, 64} {
		id.LBAF[i].LBADS = lbads
	}
	if i, size, err := formatAmong(&id, 0, 0); i != 0 || size != 4096 || err != nil {
		t.Errorf("format %d, %d bytes, %v", i, size, err)
	}
	for i := uint8(1); i <= id.NLBAF; i++ {
		if _, size, err := formatAmong(&id, i, 0); err == nil || !strings.Contains(err.Error(), "want one of 0 (4.0 KiB)") {
			t.Errorf("format %d: blocks of %d bytes, %v", i, size, err)
		}
	}
	for _, size := range []int64{1, 8} {
		if i, _, err := formatAmong(&id, 0, size); err == nil {
			t.Errorf("--block-size %d: format %d", size, i)
		}
	}
}
