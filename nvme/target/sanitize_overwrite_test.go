package target

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestSanitizeOverwrite: the pattern is what is left.
func TestSanitizeOverwrite(t *testing.T) {
	one, two := newTestVolume(1<<20, 512), newTestVolume(2<<20, 4096)
	a := connectAs(t, newTarget(t, one, two), 1)
	defer a.close()
	dirty(one, two)
	aer := a.admin.start(asyncEvent(1), nil)
	a.admin.must(sanitizeCommand(nvme.SanitizeOverwrite, nvme.SanitizeOIPBP|nvme.SanitizeNDAS, 2, 0x01020304), nil)
	sanitized(t, aer)
	want := bytes.Repeat([]byte{4, 3, 2, 1}, len(two.data)/4)
	if !bytes.Equal(two.data, want) || !bytes.Equal(one.data, want[:len(one.data)]) {
		t.Errorf("the pattern is %x…", one.data[:8])
	}
	if p := readSanitize(a.admin, false); p.SSTAT.State() != nvme.SanitizeDone || p.SSTAT.Passes() != 2 {
		t.Errorf("log %+v", p)
	}
	for _, bad := range []nvme.SanitizeAction{0, nvme.SanitizeCryptoErase, 5, 7} {
		a.admin.fails(sanitizeCommand(bad, 0, 0, 0), nil, nvme.StatusInvalidField|nvme.StatusDNR)
	}
	a.admin.must(sanitizeCommand(nvme.SanitizeExitFailure, 0, 0, 0), nil)
}

// TestSanitizeInverts: if the pattern is inverted between passes, and their number is even, the first pass writes the
// inverse, so that the last always leaves the pattern itself (NVMe base, "Sanitize Operations – Overwrite Mechanism").
func TestSanitizeInverts(t *testing.T) {
	for passes, want := range map[int]string{1: "p", 2: "ip", 3: "pip", 0: "ipipipipipipipip"} {
		v := newTestVolume(4096, 512)
		s := connectAs(t, newTarget(t, v), 1)
		var wrote []byte
		v.fail = func(r *blockdev.Request) error {
			if r.Op == blockdev.OpWrite {
				wrote = append(wrote, map[byte]byte{0x11: 'p', 0xee: 'i'}[r.Bufs[0][0]])
			}
			return nil
		}
		for flags, want := range map[uint32]string{nvme.SanitizeOIPBP: want, 0: strings.Repeat("p", len(want))} {
			wrote = nil
			aer := s.admin.start(asyncEvent(1), nil)
			s.admin.must(sanitizeCommand(nvme.SanitizeOverwrite, flags, passes, 0x11111111), nil)
			sanitized(t, aer)
			readSanitize(s.admin, false)
			if string(wrote) != want {
				t.Errorf("OWPASS %d, flags %#x: wrote %q, want %q", passes, flags, wrote, want)
			}
		}
		s.close()
	}
}

// TestSanitizePasses: while an overwrite runs, the log says how many of its passes are completed, and its progress
// (NVMe base, "Sanitize Status Log").
func TestSanitizePasses(t *testing.T) {
	v := newTestVolume(4096, 512)
	s := connectAs(t, newTarget(t, v), 1)
	defer s.close()
	aer := s.admin.start(asyncEvent(1), nil)
	v.setHold(true)
	s.admin.must(sanitizeCommand(nvme.SanitizeOverwrite, 0, 3, 0x11111111), nil)
	for pass := range 3 {
		for range 2 { // a write, and a flush
			<-v.arrived
			p := readSanitize(s.admin, true)
			if p.SSTAT.State() != nvme.SanitizeInProgress || p.SSTAT.Passes() != pass {
				t.Errorf("pass %d: state %v, %d passes completed", pass, p.SSTAT.State(), p.SSTAT.Passes())
			}
			v.mu.Lock()
			r := v.held[0]
			v.held = nil
			v.mu.Unlock()
			if from := uint16(65536 * pass / 3); r.Op == blockdev.OpWrite && p.SPROG != from {
				t.Errorf("pass %d begins at %d of 65536, want %d", pass, p.SPROG, from)
			}
			v.execute(r)
		}
	}
	sanitized(t, aer)
}

// TestSanitizeHuge: the progress of 16 passes over a volume of 1 EiB begins at 0.
func TestSanitizeHuge(t *testing.T) {
	v := newTestVolume(overwriteStep, 512)
	v.info.Size = 1 << 60
	s := connectAs(t, newTarget(t, v), 1)
	defer s.close()
	aer := s.admin.start(asyncEvent(1), nil)
	v.setHold(true)
	s.admin.must(sanitizeCommand(nvme.SanitizeOverwrite, 0, 0, 0), nil)
	<-v.arrived
	v.mu.Lock()
	first := v.held[0]
	v.held = nil
	v.mu.Unlock()
	v.execute(first)
	<-v.arrived
	if p := readSanitize(s.admin, true); p.SPROG != 0 {
		t.Errorf("at %d of 65536 after 1 MiB", p.SPROG)
	}
	v.release() // beyond the end of what there is: the operation fails
	sanitized(t, aer)
}
