package persist

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestSpan(t *testing.T) {
	f := &lineFlusher{line: 64}
	for _, x := range []struct{ addr, n, before, lines uintptr }{
		{0, 1, 0, 1}, {0, 64, 0, 1}, {0, 65, 0, 2}, {63, 1, 63, 1}, {63, 2, 63, 2},
		{4096, 4096, 0, 64}, {4095, 4098, 63, 66}, {64, 0, 0, 0},
	} {
		if b, n := f.span(x.addr, x.n); b != x.before || n != x.lines {
			t.Errorf("%d bytes at %d: %d before, %d lines; want %d, %d", x.n, x.addr, b, n, x.before, x.lines)
		}
	}
}

// mapped gives anonymous memory.
func mapped(t testing.TB, n int) []byte {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return mem
}

// TestFlusher runs the processor's own instruction: memory must not change, and nothing outside of whole lines may be
// touched.
func TestFlusher(t *testing.T) {
	f := flusher()
	if f == nil {
		t.Skip("the processor has no instruction to write a line back")
	}
	t.Logf("%s, lines of %d bytes", f.name, f.line)
	if f.line < 16 || f.line > 2048 || f.line&(f.line-1) != 0 {
		t.Fatalf("lines of %d bytes", f.line)
	}
	size := os.Getpagesize()
	mem := mapped(t, 3*size)
	// The pages around the middle one can't be touched.
	unix.Mprotect(mem[:size], unix.PROT_NONE)
	unix.Mprotect(mem[2*size:], unix.PROT_NONE)
	page := mem[size : 2*size]
	for i := range page {
		page[i] = byte(i * 7)
	}
	f.persist(page)
	f.persist(nil)
	for range 200 {
		off := rand.IntN(size)
		f.persist(page[off : off+rand.IntN(size-off)+1])
	}
	for i := range page {
		if page[i] != byte(i*7) {
			t.Fatalf("byte %d changed", i)
		}
	}
}

// flushed is a line flusher that records.
type flushed struct {
	base    uintptr
	lines   map[uintptr]int // flushed and not fenced, then fenced
	durable map[uintptr]bool
}

func (l *flushed) flusher() *lineFlusher {
	l.lines, l.durable = map[uintptr]int{}, map[uintptr]bool{}
	return &lineFlusher{
		name: "recorded", line: 64,
		flush: func(p unsafe.Pointer, n uintptr) {
			for i := range n {
				l.lines[(uintptr(p)-l.base)/64+i]++
			}
		},
		stream: func(dst, src unsafe.Pointer, n uintptr) {
			copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
			if (uintptr(dst)-l.base)%64 != 0 || n%64 != 0 {
				l.lines[^uintptr(0)]++
			}
			for i := range n / 64 {
				l.lines[(uintptr(dst)-l.base)/64+i]++
			}
		},
		fence: func() {
			for k := range l.lines {
				l.durable[k] = true
			}
			clear(l.lines)
		},
	}
}

// expect checks that exactly the lines of a range are durable, and forgets them.
func (l *flushed) expect(t *testing.T, what string, off, n int64) {
	t.Helper()
	if len(l.lines) != 0 {
		t.Errorf("%s: %d lines flushed and not fenced", what, len(l.lines))
	}
	for k := off / 64; k < (off+n+63)/64; k++ {
		if !l.durable[uintptr(k)] {
			t.Fatalf("%s: line %d isn't durable", what, k)
		}
		delete(l.durable, uintptr(k))
	}
	if len(l.durable) != 0 {
		t.Errorf("%s: %d lines too many", what, len(l.durable))
	}
	clear(l.durable)
}

// TestStore copies by all methods that this processor has, from and to any alignment.
func TestStore(t *testing.T) {
	f := flusher()
	if f == nil {
		t.Skip("the processor has no instruction to write a line back")
	}
	mem, src := mapped(t, 64<<10), make([]byte, 64<<10)
	for i := range src {
		src[i] = byte(i * 11)
	}
	for range 2000 {
		from, to, n := rand.IntN(4096), rand.IntN(4096), rand.IntN(16<<10)
		clear(mem)
		f.store(mem[to:to+n], src[from:from+n])
		f.fence()
		if !bytes.Equal(mem[to:to+n], src[from:from+n]) {
			t.Fatalf("%d bytes from %d to %d", n, from, to)
		}
		if bytes.ContainsFunc(mem[:to], notZero) || bytes.ContainsFunc(mem[to+n:to+n+64], notZero) {
			t.Fatalf("%d bytes from %d to %d: something beside them changed", n, from, to)
		}
	}
}

// TestStoreDurable: whatever the alignment of a store, exactly its lines are durable after the fence.
func TestStoreDurable(t *testing.T) {
	mem, src := mapped(t, 64<<10), make([]byte, 16<<10)
	l := &flushed{base: uintptr(unsafe.Pointer(unsafe.SliceData(mem)))}
	f := l.flusher()
	for range 2000 {
		to, n := rand.IntN(4096), 1+rand.IntN(len(src))
		f.store(mem[to:to+n], src[:n])
		f.fence()
		l.expect(t, fmt.Sprintf("%d bytes at %d", n, to), int64(to), int64(n))
	}
}

func notZero(r rune) bool { return r != 0 }

func BenchmarkPersist(b *testing.B) {
	f := flusher()
	if f == nil {
		b.Skip("no instruction")
	}
	mem := mapped(b, 64<<20)
	clear(mem)
	src := make([]byte, 128<<10)
	for _, n := range []int{512, 4096, 16 << 10, 128 << 10} {
		for _, with := range []string{"copy", "copy and " + f.name, "store"} {
			b.Run(fmt.Sprintf("%s/%dk", with, n>>10), func(b *testing.B) {
				b.SetBytes(int64(n))
				for range b.N {
					dst := mem[rand.IntN(len(mem)/n)*n:][:n]
					if with == "store" {
						f.store(dst, src[:n])
						f.fence()
						continue
					}
					copy(dst, src)
					if with != "copy" {
						f.persist(dst)
					}
				}
			})
		}
	}
}

// faulty is a processor that finds some of the memory missing when it flushes its lines, as after a media error.
type faulty struct{ missing []byte }

// missing is the fault, as Go's runtime describes it.
type missing uintptr

func (m missing) Addr() uintptr { return uintptr(m) }

func (f *faulty) flusher() *lineFlusher {
	return &lineFlusher{
		name: "faulty", line: simLine,
		flush: func(p unsafe.Pointer, _ uintptr) {
			if uintptr(p)-uintptr(unsafe.Pointer(unsafe.SliceData(f.missing))) < uintptr(len(f.missing)) {
				panic(missing(uintptr(p)))
			}
		},
		fence: func() {},
	}
}
