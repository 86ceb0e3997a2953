package nvme

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

func TestNSIDListGolden(t *testing.T) {
	b := golden(t, "identify-active-nsids")
	l, err := ParseNSIDList(b)
	if err != nil || !slices.Equal(l, NSIDList{1}) {
		t.Fatalf("got %v, %v", l, err)
	}
	if !bytes.Equal(l.AppendTo(nil), b) {
		t.Error("append differs from the capture")
	}
}

func TestNSIDListFull(t *testing.T) {
	l := make(NSIDList, MaxNSIDList+5)
	for i := range l {
		l[i] = uint32(i + 1)
	}
	b := l.AppendTo(nil)
	if len(b) != PageSize {
		t.Fatalf("page of %d bytes", len(b))
	}
	if got, _ := ParseNSIDList(b); !slices.Equal(got, l[:MaxNSIDList]) {
		t.Error("a full page lost entries")
	}
}

func TestControllerList(t *testing.T) {
	l := ControllerList{1, 2, 0xffef}
	b := l.AppendTo(nil)
	got, err := ParseControllerList(b)
	if err != nil || !slices.Equal(got, l) || len(b) != PageSize {
		t.Fatalf("got %v, %v", got, err)
	}
	b[0], b[1] = 0, 8 // 2048 entries, one more than fit
	if _, err := ParseControllerList(b); !errors.Is(err, ErrMalformed) {
		t.Errorf("2048 entries: %v", err)
	}
}

func TestDescriptorsGolden(t *testing.T) {
	var d NSDescriptors
	checkGolden(t, "identify-descriptors", &d)
	if err := d.Parse(golden(t, "identify-descriptors")); err != nil {
		t.Fatal(err)
	}
	if !d.HasCSI || d.CSI != CSINVM || uuid.UUID(d.UUID).String() != "52776401-ced4-42cb-8b81-b40bb0f9a44d" {
		t.Errorf("got %+v", d)
	}
}

// TestDescriptorsAll: a namespace may have every kind of identifier, and the list ends at a type or a length of zero.
func TestDescriptorsAll(t *testing.T) {
	want := NSDescriptors{EUI64: [8]byte{1, 7: 8}, NGUID: [16]byte{2, 15: 9}, UUID: [16]byte{3, 15: 10}, CSI: CSIZonedNS, HasCSI: true}
	b := want.AppendTo(nil)
	for off, head := range map[int][4]byte{0: {1, 8}, 12: {2, 16}, 32: {3, 16}, 52: {4, 1}, 57: {}} {
		if [4]byte(b[off:]) != head {
			t.Errorf("at %d is % x, want % x", off, b[off:][:4], head)
		}
	}
	var got NSDescriptors
	if err := got.Parse(b); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, end := range []int{32, 33} { // the type and the length of the UUID
		cut := slices.Clone(b)
		cut[end] = 0
		if err := got.Parse(cut); err != nil || got != (NSDescriptors{EUI64: want.EUI64, NGUID: want.NGUID}) {
			t.Errorf("ended at %d: %+v, %v", end, got, err)
		}
	}
	if none := (&NSDescriptors{}).AppendTo(nil); !slices.Equal(none, make([]byte, PageSize)) {
		t.Errorf("of no identifier: % x", none[:64])
	}
}

func TestDescriptorsMalformed(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
	}{
		{"UUID of 15 bytes", []byte{3, 15, 0, 0}},
		{"EUI64 of 16 bytes", []byte{1, 16, 0, 0}},
		{"EUI64 of 7 bytes", []byte{1, 7, 0, 0}},
		{"NGUID of 15 bytes", []byte{2, 15, 0, 0}},
		{"NGUID of 17 bytes", []byte{2, 17, 0, 0}},
		{"CSI of 2 bytes", []byte{4, 2, 0, 0}},
	} {
		page := make([]byte, PageSize)
		copy(page, c.b)
		var d NSDescriptors
		if err := d.Parse(page); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A descriptor of unknown type is skipped, unless it runs over the page.
	page := make([]byte, PageSize)
	copy(page, []byte{9, 2, 0, 0, 0, 0, 4, 1, 0, 0, 2})
	var d NSDescriptors
	if err := d.Parse(page); err != nil || d.CSI != CSIZonedNS {
		t.Errorf("after an unknown type: %+v, %v", d, err)
	}
	for off := 0; off+5 <= PageSize; off += 5 {
		copy(page[off:], []byte{4, 1, 0, 0, 0})
	}
	if err := d.Parse(page); err != nil {
		t.Errorf("page full of descriptors: %v", err)
	}
	copy(page[4085:], []byte{3, 16, 0, 0})
	if err := d.Parse(page); !errors.Is(err, ErrMalformed) {
		t.Errorf("descriptor over the end: %v", err)
	}
}

func TestCommandSetGolden(t *testing.T) {
	var p IdentifyControllerNVM
	checkGolden(t, "identify-command-set", &p)
	p = IdentifyControllerNVM{WZSL: 1, DMRL: 3, DMRSL: 4, DMSL: 5}
	if b := p.AppendTo(nil); b[1] != 1 || b[3] != 3 || b[4] != 4 || b[8] != 5 {
		t.Errorf("page % x", b[:16])
	}
}

func FuzzNSDescriptors(f *testing.F) { fuzzPage[*NSDescriptors](f, "identify-descriptors") }

func FuzzIdentifyControllerNVM(f *testing.F) {
	fuzzPage[*IdentifyControllerNVM](f, "identify-command-set")
}

func FuzzLists(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(golden(f, "identify-active-nsids"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := ParseNSIDList(b); err == nil {
			if got, err := ParseNSIDList(l.AppendTo(nil)); err != nil || !slices.Equal(got, l) {
				t.Fatalf("namespaces %v became %v, %v", l, got, err)
			}
		}
		if l, err := ParseControllerList(b); err == nil {
			if got, err := ParseControllerList(l.AppendTo(nil)); err != nil || !slices.Equal(got, l) {
				t.Fatalf("controllers %v became %v, %v", l, got, err)
			}
		}
	})
}
