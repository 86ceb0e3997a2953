package fio

import (
	"reflect"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/loadgen"
)

// TestSizesPrecedence: bssplit comes before bsrange, and bsrange before bs, for each direction and in whatever order
// they are given. fio 3.33 runs --bssplit=64k/50:128k/50 --bs=4k in blocks of 64k and 128k.
func TestSizesPrecedence(t *testing.T) {
	fixed, ranged := loadgen.Fixed(4096), loadgen.Range(64<<10, 128<<10)
	split := loadgen.Split{{Bytes: 64 << 10, Percent: 50}, {Bytes: 128 << 10, Percent: 50}}
	for _, c := range []struct {
		options      string
		reads, trims loadgen.Split
	}{
		{"bssplit=64k/50:128k/50 bs=4k", split, split},
		{"bs=4k bssplit=64k/50:128k/50", split, split},
		{"bsrange=64k-128k bs=4k", ranged, ranged},
		{"blocksize_range=64k-128k blocksize=4k", ranged, ranged},
		{"bs=4k bsrange=64k-128k", ranged, ranged},
		{"bsrange=8k-16k bssplit=64k/50:128k/50", split, split},
		{"bssplit=64k/50:128k/50 bsrange=64k-128k", split, split},
		{"bsrange=64k-128k, bs=4k", ranged, fixed},
		{"bssplit=64k/50:128k/50,,4k/100 bs=16k", split, fixed},
		{"bssplit=,,64k/50:128k/50 bs=4k", fixed, split},
		{"bsrange=8k-16k bsrange=64k-128k", ranged, ranged},
		{"bssplit=8k:16k bssplit=64k/50:128k/50 bsrange=4k-4k bs=8k", split, split},
	} {
		j := NewJob("test")
		for o := range strings.FieldsSeq(c.options) {
			name, value, _ := strings.Cut(o, "=")
			if err := j.Set(name, value); err != nil {
				t.Fatal(err)
			}
		}
		if got := j.BS; !reflect.DeepEqual(got[loadgen.Read], c.reads) || !reflect.DeepEqual(got[loadgen.Trim], c.trims) {
			t.Errorf("%s: sizes %v, want %v for reads and %v for trims", c.options, got, c.reads, c.trims)
		}
	}
}

// TestInheritedSizes: a bssplit of [global] applies in spite of a bs in the section, as in fio, but not in spite of
// one on the command line.
func TestInheritedSizes(t *testing.T) {
	f, err := Parse("x.fio", strings.NewReader("[global]\nbssplit=64k:128k\n[a]\nbs=4k\n[b]\nbssplit=,8k/100\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := f.Jobs[0], f.Jobs[1]
	if len(a.BS[loadgen.Read]) != 2 || len(b.BS[loadgen.Read]) != 2 || !reflect.DeepEqual(b.BS[loadgen.Write], loadgen.Fixed(8192)) {
		t.Errorf("sizes of a %v, of b %v", a.BS, b.BS)
	}
	line := NewJob("bench")
	if err := line.Set("bs", ",16k,"); err != nil {
		t.Fatal(err)
	}
	if err := a.Apply(line); err != nil || len(a.BS[loadgen.Read]) != 2 || !reflect.DeepEqual(a.BS[loadgen.Write], loadgen.Fixed(16<<10)) {
		t.Errorf("with --bs ,16k,: %v, sizes %v", err, a.BS)
	}
}
