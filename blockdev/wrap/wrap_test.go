package wrap_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type opener = func(blockdev.Options) (blockdev.Volume, error)

// Every wrapper passes the volumes' suite, on memory and on a file.
func TestSuite(t *testing.T) {
	const stack = "check:freeze:1h+1s:fail:read@1000000-1000001,any%0:delay:0s-5us:"
	t.Run("mem", func(t *testing.T) {
		volumetest.Run(t, volumetest.Config{Volatile: true, New: func(*testing.T) opener {
			return func(o blockdev.Options) (blockdev.Volume, error) {
				return blockdev.Open(stack+"mem:", o, wrap.Kinds()...)
			}
		}})
	})
	t.Run("file", func(t *testing.T) {
		volumetest.Run(t, volumetest.Config{New: func(t *testing.T) opener {
			path := filepath.Join(t.TempDir(), "v")
			return func(o blockdev.Options) (blockdev.Volume, error) {
				return blockdev.Open(stack+path, o, wrap.Kinds()...)
			}
		}})
	})
}

func open(t *testing.T, spec string) blockdev.Volume {
	t.Helper()
	v, err := blockdev.Open(spec, blockdev.Options{}, wrap.Kinds()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	return v
}

func TestSpecs(t *testing.T) {
	const file = "check:nosuch:1MiB" // which may have such a name
	for spec, word := range map[string]string{
		"delay:mem:1MiB":             "2ms",
		"delay:2ms":                  "no volume",
		"delay:5ms-1ms:mem:1MiB":     "2ms",
		"delay:-1ms:mem:1MiB":        "2ms",
		"fail:read:mem:1MiB":         "neither",
		"fail:read@5-4:mem:1MiB":     "no range",
		"fail:erase@5:mem:1MiB":      `"erase"`,
		"fail:read@5=bad:mem:1MiB":   `"bad"`,
		"fail:any%101:mem:1MiB":      "percentage",
		"fail:any%NaN:mem:1MiB":      "percentage",
		"fail:any%-1:mem:1MiB":       "percentage",
		"fail:any%some:mem:1MiB":     "percentage",
		"fail:read@some:mem:1MiB":    "no range",
		"fail:read@5-some:mem:1MiB":  "no range",
		"fail:read@-5:mem:1MiB":      "no range",
		"freeze:5s:mem:1MiB":         "10s+5s",
		"freeze:5s+0s:mem:1MiB":      "10s+5s",
		"freeze:-1s+5s:mem:1MiB":     "10s+5s",
		"freeze:some+5s:mem:1MiB":    "10s+5s",
		"freeze:5s+some:mem:1MiB":    "10s+5s",
		"check:":                     "no volume",
		file:                         "delay:TIME:VOLUME",
		"check:delay:1ms:mem:banana": "banana",
	} {
		v, err := blockdev.Open(spec, blockdev.Options{}, wrap.Kinds()...)
		if err == nil {
			v.Close()
		}
		if !errors.Is(err, blockdev.ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want an error with %q", spec, err, word)
		}
		if spec == file {
			continue
		}
		err = blockdev.CheckSpec(spec, blockdev.Options{}, wrap.Kinds()...)
		if !errors.Is(err, blockdev.ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: checked with %v, want an error with %q", spec, err, word)
		}
	}
	if err := blockdev.CheckSpec("check:delay:1ms:mem:1MiB", blockdev.Options{}, wrap.Kinds()...); err != nil {
		t.Error(err)
	}
	v := open(t, "check:delay:1ms-2ms:fail:read@7,write%0.5=capacity:freeze:1h+1s:mem:1MiB")
	want := "memory; can freeze; failing read@7-7 write%0.5=capacity; delayed by 1ms to 2ms; checked"
	if m := v.Info().Mode; m != want {
		t.Errorf("mode %q, want %q", m, want)
	}
	if len(wrap.Find[*wrap.Freezer](v)) != 1 || len(wrap.Find[*wrap.Checker](v)) != 1 {
		t.Error("a layer isn't found")
	}
	for spec, inner := range map[string]string{
		"check:delay:1ms:mem:1MiB": "mem:1MiB", "disk.img": "disk.img", "fail:read%1": "fail:read%1", "./check:x": "./check:x",
		"check": "check",
	} {
		if got := wrap.Innermost(spec); got != inner {
			t.Errorf("innermost of %s: %s", spec, got)
		}
	}
}

// TestClosed: each wrapper answers what is submitted after it was closed.
func TestClosed(t *testing.T) {
	for _, spec := range []string{"delay:1ms:", "fail:any%100:", "freeze:manual:", "check:"} {
		v := open(t, spec+"mem:1MiB")
		if err := v.Close(); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
		if err := volumetest.NewClient(v).Read(make([]byte, 4096), 0); !errors.Is(err, blockdev.ErrGone) {
			t.Errorf("%s: read: %v", spec, err)
		}
		if err := v.Close(); !errors.Is(err, blockdev.ErrGone) {
			t.Errorf("%s: closing again: %v", spec, err)
		}
	}
}

// asking is a volume whose writes had to wait: it drops those that are no longer wanted.
type asking struct{ blockdev.Volume }

func (a asking) Submit(r *blockdev.Request) {
	if r.Unwanted != nil && r.Unwanted() {
		i := a.Info()
		r.End(i.Fail(r.Op, r.Offset, blockdev.ErrUnwanted, nil))
		return
	}
	a.Volume.Submit(r)
}

// TestUnwanted: a volume that asks whether a write is wanted gets the answer below wrappers too; a dropped write isn't
// taken for written, nor the next one for unwanted.
func TestUnwanted(t *testing.T) {
	m, err := blockdev.NewMemory(blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	v := wrap.NewChecker(wrap.NewFreezer(wrap.NewFail(wrap.NewDelay(asking{m}, 0, 0))))
	defer v.Close()
	done := make(chan error, 1)
	do := func(op blockdev.Op, b []byte, unwanted func() bool) error {
		v.Submit(&blockdev.Request{Op: op, Length: int64(len(b)), Bufs: [][]byte{b}, Unwanted: unwanted,
			Complete: func(r *blockdev.Request) { done <- r.Err }})
		return <-done
	}
	one, two, got := bytes.Repeat([]byte{1}, 4096), bytes.Repeat([]byte{2}, 4096), make([]byte, 4096)
	if err := do(blockdev.OpWrite, one, func() bool { return false }); err != nil {
		t.Error(err)
	}
	if err := do(blockdev.OpWrite, two, func() bool { return true }); !errors.Is(err, blockdev.ErrUnwanted) {
		t.Errorf("a write that nobody wants: %v", err)
	}
	if err := do(blockdev.OpRead, got, nil); err != nil || !bytes.Equal(got, one) {
		t.Errorf("it was made, or %v", err)
	}
	if err := do(blockdev.OpWrite, two, nil); err != nil {
		t.Errorf("the next: %v", err)
	}
}
