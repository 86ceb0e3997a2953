package mem

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

var page = os.Getpagesize()

// cutMapping maps two pages of a file, the second of which is then truncated.
func cutMapping(t *testing.T) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(2 * page)); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(m) })
	if err := f.Truncate(int64(page)); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFaults(t *testing.T) {
	m, b := cutMapping(t), make([]byte, page)
	for _, x := range []struct {
		what     string
		dst, src []byte
		ok       bool
	}{
		{"from what is there", b, m[:page], true},
		{"to what is there", m[:page], b, true},
		{"from what was cut", b, m[page:], false},
		{"to what was cut", m[page:], b, false},
		{"from both", b, m[page/2 : page+page/2], false},
	} {
		if n, ok := Copy(x.dst, x.src); ok != x.ok || ok && n != len(b) {
			t.Errorf("%s: %d, %v", x.what, n, ok)
		}
	}
	if debug.SetPanicOnFault(false) {
		t.Error("faults panic afterwards")
	}
}

// TestOtherFaults: a fault elsewhere is a bug of the program, and still panics.
func TestOtherFaults(t *testing.T) {
	m := cutMapping(t)
	defer func() {
		if recover() == nil {
			t.Error("a fault in other memory was taken for the caller's")
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	func() {
		var ok bool
		defer Caught(&ok, debug.SetPanicOnFault(true), m[:page])
		m[page] = 1
	}()
}

func TestCopyAllocates(t *testing.T) {
	a, b := make([]byte, page), make([]byte, page)
	if n := testing.AllocsPerRun(100, func() { Copy(a, b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCopy(b *testing.B) {
	x, y := make([]byte, 64), make([]byte, 64)
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			copy(x, y)
		}
	})
	b.Run("caught", func(b *testing.B) {
		for b.Loop() {
			Copy(x, y)
		}
	})
}
