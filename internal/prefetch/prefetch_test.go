package prefetch

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPastOver fetches memory that can't be accessed, past the end of a mapping, and nil; and fetches for writing
// memory that is read-only.
func TestPastOver(t *testing.T) {
	page := unix.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	for i := range mem[:page] {
		mem[i] = byte(i)
	}
	if err := unix.Mprotect(mem[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	was := bytes.Clone(mem[:page])
	for _, access := range []int{unix.PROT_READ, unix.PROT_READ | unix.PROT_WRITE} {
		if err := unix.Mprotect(mem[:page], access); err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{nil, {}, mem, mem[page-1 : page], mem[page:], mem[2*page:]} {
			Start(b)
			Whole(b)
			ForWrite(b)
		}
	}
	if !bytes.Equal(mem[:page], was) {
		t.Error("the memory has changed")
	}
	if n := testing.AllocsPerRun(10, func() { Start(mem); Whole(mem); ForWrite(mem) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
