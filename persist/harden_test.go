package persist

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// TestReplayNotSynced: the entries of a program that was killed aren't carried over if what they point to can't be made
// durable first. The kernel reports a failed write once: the next sync would succeed, and a map that points to lost
// blocks would be regarded as durable.
func TestReplayNotSynced(t *testing.T) {
	path, _ := filled(t)
	v := mustOpen(t, path, blockdev.Options{})
	defer v.Close() // which can't sync either
	x := (*v.extents.Load())[0]
	x.work[0]++
	durable := x.durable[0]
	// msync refuses a range that isn't completely mapped. Nothing touches the last page.
	page := v.m.mem[(len(v.m.mem)-1)&^(os.Getpagesize()-1):]
	if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(&page[0])), uintptr(len(page)), 0); errno != 0 {
		t.Fatal(errno)
	}
	if err := v.replay(); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("replay: %v, want that of the sync", err)
	}
	if x.durable[0] != durable {
		t.Error("the durable map changed")
	}
}

// TestGiveUpHardened: two logical blocks that share a block are durably marked as disputed before either is marked as
// lost, and a repair that can't make its marks durable fails.
func TestGiveUpHardened(t *testing.T) {
	needDisk(t)
	broken := errors.New("broken")
	for fails := range 3 { // which of the two times
		path, _ := filled(t)
		v := mustOpen(t, path, blockdev.Options{})
		v.kind = onSync
		x := (*v.extents.Load())[0]
		x.table[2] = v.entry(2, native(x.table[5])&entryMask)
		lost := func(i int) bool { return x.table[i] == v.entry(uint64(i), lostBlock) }
		disputed := func(i int) bool { return v.isDisputed(uint64(i), native(x.table[i])) }
		calls := 0
		sync := v.sync
		v.sync = func(b []byte) error {
			if table := bytesOf(x.table); &b[0] != &table[0] || len(b) != len(table) {
				t.Errorf("%d bytes are made durable, not the map", len(b))
			}
			if calls == 0 && (!disputed(2) || !disputed(5)) || calls == 1 && (!lost(2) || !lost(5)) {
				t.Errorf("call %d: disputed %v %v, lost %v %v", calls, disputed(2), disputed(5), lost(2), lost(5))
			}
			if calls++; calls == fails+1 {
				return broken
			}
			return nil
		}
		err := v.giveUp([]Damage{{Block: 5}})
		if want := fails < 2; errors.Is(err, broken) != want || calls != min(fails+1, 2) {
			t.Errorf("failing %d: %v after %d calls", fails, err, calls)
		}
		if fails == 0 && (lost(2) || lost(5)) {
			t.Error("marked as lost before it was durable that they are disputed")
		}
		v.sync = sync
		_ = v.Close()
	}
}
