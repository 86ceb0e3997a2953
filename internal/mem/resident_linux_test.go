package mem

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resident returns how many pages of b's chunk take memory.
func resident(t *testing.T, a *Arena, b []byte) (n int) {
	t.Helper()
	index, _, ok := a.ChunkOf(b)
	if !ok {
		t.Fatal("not of the arena")
	}
	chunk := a.chunks[index].mem
	pages := make([]byte, len(chunk)/pageSize)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&chunk[0])), uintptr(len(chunk)),
		uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for _, p := range pages {
		n += int(p & 1)
	}
	return n
}

// TestSparse: only those pages of a sparse buffer take memory that were written to, even if an ordinary buffer was
// allocated before, or will be.
func TestSparse(t *testing.T) {
	a := newArena(t, Config{})
	before := a.Alloc(pageSize)
	before[0] = 1
	b := a.AllocSparse(520 << 10)
	after := a.Alloc(pageSize)
	after[0] = 1
	b[0], b[300<<10] = 1, 1
	if n := resident(t, a, b); n != 2 {
		t.Errorf("%d pages for two bytes", n)
	}
	a.Free(b)
	if c := a.AllocSparse(520 << 10); &c[0] != &b[0] {
		t.Error("what was freed isn't used again")
	}
}

// TestSparseWithoutRoom: if there is no room for another chunk, either kind of buffer comes from a chunk of the other
// kind.
func TestSparseWithoutRoom(t *testing.T) {
	type alloc = func(*Arena, int) []byte
	for name, kinds := range map[string][2]alloc{
		"sparse": {(*Arena).Alloc, (*Arena).AllocSparse}, "ordinary": {(*Arena).AllocSparse, (*Arena).Alloc},
	} {
		a := newArena(t, Config{Max: ChunkSize})
		if kinds[0](a, ChunkSize/2) == nil {
			t.Fatal("no room for the first")
		}
		b := kinds[1](a, ChunkSize/2)
		if b == nil {
			t.Fatalf("%s: no room beside the other kind", name)
		}
		a.Free(b)
		if kinds[0](a, ChunkSize/2) == nil {
			t.Errorf("%s: what was freed isn't there for the other kind", name)
		}
	}
}
