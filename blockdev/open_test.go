package blockdev_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

func TestOpen(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, x := range []struct {
		spec string
		o    blockdev.Options
		kind string
		size int64
	}{
		{"mem:1GiB", blockdev.Options{}, "mem", 1 << 30},
		{"mem:", blockdev.Options{Size: mib}, "mem", mib},
		{"mem:64k", blockdev.Options{BlockSize: 512}, "mem", 64 << 10},
		{"null:1TiB", blockdev.Options{}, "null", 1 << 40},
		{"disk.img", blockdev.Options{Size: mib}, "file", mib},
		{"disk.img", blockdev.Options{}, "file", mib},
		{"file:disk.img", blockdev.Options{}, "file", mib},
		{"./a:b", blockdev.Options{Size: mib}, "file", mib},
		{"a:b", blockdev.Options{}, "file", mib},
	} {
		v, err := blockdev.Open(x.spec, x.o)
		if err != nil {
			t.Errorf("%s: %v", x.spec, err)
			continue
		}
		if i := v.Info(); i.Kind != x.kind || i.Size != x.size {
			t.Errorf("%s: %s of %d bytes", x.spec, i.Kind, i.Size)
		}
		v.Close()
	}
}

func TestOpenErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, x := range []struct {
		spec string
		o    blockdev.Options
		say  string
	}{
		{"", blockdev.Options{}, "mem:SIZE"},
		{"mem:", blockdev.Options{}, "needs a size"},
		{"mem:lots", blockdev.Options{}, "1GiB"},
		{"mem:1GiB", blockdev.Options{Size: mib}, "two sizes"},
		{"mem:1000", blockdev.Options{}, "multiple"},
		{"nul:1GiB", blockdev.Options{Size: mib}, "null:SIZE"},
		{"null:9EiB", blockdev.Options{}, "8 EiB"},
		{"null:99999PiB", blockdev.Options{}, "8 EiB"},
		{"disk.img", blockdev.Options{BlockSize: 3}, "power of two"},
	} {
		_, err := blockdev.Open(x.spec, x.o)
		mustFail(t, err, blockdev.ErrInvalid, x.say)
	}
	_, err := blockdev.Open("mem:1PiB", blockdev.Options{})
	mustFail(t, err, blockdev.ErrCapacity, "take less")
	if _, err := os.Stat("nul:1GiB"); err == nil {
		t.Error("a misspelt kind became a file")
	}
}

// TestOpenKind opens volumes by a kind of another package.
func TestOpenKind(t *testing.T) {
	t.Chdir(t.TempDir())
	other := blockdev.Kind{Name: "x", Form: "x:ANY", Open: func(arg string, o blockdev.Options) (blockdev.Volume, error) {
		return nil, errors.New(arg)
	}}
	if _, err := blockdev.Open("x:y:z", blockdev.Options{}, other); err == nil || err.Error() != "y:z" {
		t.Errorf("a kind of another package: %v", err)
	}
	if _, err := blockdev.Open(filepath.Join("no", "such"), blockdev.Options{}, other); err == nil {
		t.Error("opened what isn't there")
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"4096": 4096, "4k": 4096, "4K": 4096, "4KiB": 4096, "64M": 64 << 20, "1G": 1 << 30, "1GiB": 1 << 30,
		"1.5GiB": 3 << 29, "1TiB": 1 << 40, "1GB": 1e9, "2 MiB": 2 << 20, " 1g ": 1 << 30, "512B": 512, "7EiB": 7 << 60,
	} {
		if got, err := blockdev.ParseSize(s); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "k", "x", "-1", "1XB", "8EiB", "99999999999999999999", "-1GiB", "NaN", "Inf", "1e300", "1,5GiB", "4,096"} {
		if n, err := blockdev.ParseSize(s); err == nil {
			t.Errorf("%q: %d", s, n)
		}
	}
	for n, want := range map[int64]string{1 << 30: "1.0 GiB", 4096: "4.0 KiB", 1e9: "954 MiB (1,000,000,000 bytes)"} {
		if got := blockdev.FormatSize(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// TestCheckSize: an error names the sizes next to one that can't be, but none that is more than a size can be.
func TestCheckSize(t *testing.T) {
	for size, take := range map[int64]string{
		1000: "take 4096", 5000: "take 4096 or 8192", math.MaxInt64 - 511: "take 9223372036854771712",
	} {
		err := blockdev.CheckSize(size, 4096)
		if err == nil || !strings.HasSuffix(strings.Split(err.Error(), ", or")[0], take) {
			t.Errorf("%d: %v, want %q", size, err, take)
		}
	}
}

func FuzzParseSize(tf *testing.F) {
	f := fuzzing.New(tf)
	for _, s := range []string{"4k", "1GiB", "-1", "1e9", "9E", "0x10"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := blockdev.ParseSize(s); err == nil && n < 0 {
			t.Errorf("%q: %d", s, n)
		}
	})
}

func TestSplitSpec(t *testing.T) {
	withOption := blockdev.Kind{Name: "other", Path: func(arg string) string { return strings.TrimSuffix(arg, ",option") }}
	for spec, want := range map[string][3]string{
		"disk.img":              {"", "disk.img", ""},
		"file:disk.img":         {"file:", "disk.img", ""},
		"file:a:b":              {"file:", "a:b", ""},
		"a:b":                   {"", "a:b", ""},
		"other:disk.img,option": {"other:", "disk.img", ",option"},
		"mem:1GiB":              {"mem:1GiB", "", ""},
		"null:":                 {"null:", "", ""},
		"":                      {"", "", ""},
	} {
		before, path, behind := blockdev.SplitSpec(spec, withOption)
		if got := [3]string{before, path, behind}; got != want {
			t.Errorf("%q is %q, want %q", spec, got, want)
		}
	}
}
