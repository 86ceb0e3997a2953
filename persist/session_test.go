package persist

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
	"github.com/nvme-anywhere/nvmeof/internal/sandbox"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestRemount: a file system that was remounted has none of its former pages. If its device failed, or went away and
// came back, pages of a working map may be missing that were never written, and none of it may count: each flushed
// write is there when the volume is reopened.
func TestRemount(t *testing.T) {
	for _, kind := range []string{"ext4", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			mount, unmount := loopFS(t, kind)
			testRemount(t, mount, unmount)
		})
	}
}

func testRemount(t *testing.T, mount func() string, unmount func()) {
	dir := mount()
	path := filepath.Join(dir, "v")
	v := mustOpen(t, path, blockdev.Options{Size: mib})
	c := volumetest.NewClient(v)
	for i := range 8 {
		mustWrite(t, c, block(i+1), int64(i)*4096, false)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	work := (*v.extents.Load())[0].rec.workOff
	before := v.super.session
	abandon(t, v)
	unmount()
	if mount() != dir {
		t.Fatal("mounted elsewhere")
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if s, err := currentSession(f); err != nil || s.dev != before.dev || s.inode != before.inode || s.boot != before.boot {
		t.Skipf("the file is another: %+v, %+v, %v", s, before, err)
	}
	wantFlushed(t, path, f, work)
}

// TestRemountWithoutDevice: nor does a working map count in another mount of a file system that isn't on a device.
func TestRemountWithoutDevice(t *testing.T) {
	if _, err := os.Stat("/sys/class/bdi"); err != nil {
		t.Skip("the system doesn't tell mounts without a device apart:", err)
	}
	var found [2]session
	for i := range found {
		found[i] = fuseSession(t)
	}
	one, two := found[0], found[1]
	if one.dev != two.dev || one.inode != two.inode {
		t.Skipf("the file is another: %+v, %+v", one, two)
	}
	if one == two || one.mount == 0 {
		t.Errorf("two mounts look the same: %+v, %+v", one, two)
	}
}

// fuseSession mounts a file system of this program, and returns the session of its only file, which is a directory.
func fuseSession(t *testing.T) session {
	t.Helper()
	dir := t.TempDir()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fd)
	if err := unix.Mount("test", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		t.Skip(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serveFUSE(fd)
	}()
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Fatal(err)
		}
		<-ended
	}()
	root, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(root), dir)
	defer f.Close() // before it is unmounted
	s, err := currentSession(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serveFUSE answers what the kernel asks of a file system with nothing but a root, until it is unmounted.
func serveFUSE(fd int) {
	const getattr, initialize = 3, 26
	le, refused := binary.LittleEndian, -int32(unix.ENOSYS)
	for b := make([]byte, 64<<10); ; {
		if err := retry("read", func() error { _, err := unix.Read(fd, b); return err }); err != nil {
			return
		}
		answer, n := make([]byte, 16+104), 16 // struct fuse_out_header is 16 bytes
		switch le.Uint32(b[4:]) {
		case initialize:
			n += 64
			le.PutUint32(answer[16:], 7) // version 7.31
			le.PutUint32(answer[20:], 31)
			le.PutUint32(answer[36:], 4096) // the longest write
		case getattr:
			n += 104
			le.PutUint64(answer[32:], 1) // inode number
			le.PutUint32(answer[92:], unix.S_IFDIR|0o700)
			le.PutUint32(answer[96:], 1) // links
		default:
			le.PutUint32(answer[4:], uint32(refused))
		}
		le.PutUint32(answer, uint32(n))
		copy(answer[8:16], b[8:]) // the request's number
		_, _ = unix.Write(fd, answer[:n])
	}
}

// wantFlushed makes the working map begin as the disk had it, empty, and then wants each of the first eight blocks,
// which were flushed.
func wantFlushed(t *testing.T, path string, f *os.File, work uint64) {
	t.Helper()
	if _, err := f.WriteAt(make([]byte, 64), int64(work)); err != nil {
		t.Fatal(err)
	}
	v := mustOpen(t, path, blockdev.Options{})
	got := make([]byte, 4096)
	for i := range 8 {
		if err := volumetest.NewClient(v).Read(got, int64(i)*4096); err != nil || !bytes.Equal(got, block(i+1)) {
			t.Errorf("block %d, which was flushed: %v, %d…", i, err, got[0])
		}
	}
	mustClose(t, v)
}

// abandon leaves a volume as a killed program does.
func abandon(t *testing.T, v *atomicVolume) {
	t.Helper()
	v.life.Close()
	v.pool.Close()
	if err := errors.Join(v.unmapOwn(), v.m.close()); err != nil {
		t.Fatal(err)
	}
}

// loopFS makes a file system in a file, and returns what mounts it, always with the same device in the same place, and
// what unmounts it, also where somebody has just made a mount namespace, which has all mounts.
func loopFS(t *testing.T, kind string) (mount func() string, unmount func()) {
	t.Helper()
	device, dir := disktest.LoopDevice(t, disktest.Image(t, 128*mib)), t.TempDir() // Btrfs takes no less than 109
	run := func(name string, args ...string) {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Skipf("%s %v: %v: %s", name, args, err, out)
		}
	}
	run("mkfs."+kind, "-q", device)
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	mount = func() string {
		run("mount", "-t", kind, device, dir)
		return dir
	}
	unmount = func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Fatal(err)
		}
		unused := func() bool { // a file system has its device exclusively
			fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL, 0)
			return err == nil && unix.Close(fd) == nil
		}
		if !soon.Until(unused) {
			t.Skip("it is still mounted in another mount namespace")
		}
	}
	return mount, unmount
}

// TestPageCaches: on disks completed writes are only in the page cache, and hosts learn that they must flush.
func TestPageCaches(t *testing.T) {
	want := func(t *testing.T, open openFunc, path string, size int64, below string) {
		t.Helper()
		v, err := open(path, blockdev.Options{Size: size})
		if err != nil {
			t.Fatal(err)
		}
		if i := v.Info(); !i.VolatileCache || !strings.HasPrefix(i.Mode, "mapped file on "+below+", msync") {
			t.Errorf("a volatile cache: %v, %s", i.VolatileCache, i.Mode)
		}
		mustClose(t, v)
	}
	for _, kind := range []string{"ext4", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			mount, _ := loopFS(t, kind)
			dir := mount()
			want(t, inPlace, filepath.Join(dir, "in place"), mib, kind)
			want(t, Open, filepath.Join(dir, "out of place"), mib, kind)
		})
	}
	t.Run("device", func(t *testing.T) {
		device := disktest.LoopDevice(t, disktest.Image(t, 16*mib))
		want(t, inPlace, device, 0, "block device")
		if err := Format(device, 0); err != nil {
			t.Fatal(err)
		}
		want(t, Open, device, 0, "block device")
	})
}

// TestFailedSyncInPlace: the system reports a failed write-back once. Whoever gets the report, no later Flush may say
// that what was lost is durable.
func TestFailedSyncInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	opened, err := inPlace(path, blockdev.Options{Size: mib})
	if err != nil {
		t.Fatal(err)
	}
	v, ok := opened.(*volume)
	if !ok || !v.info.VolatileCache {
		t.Skip("no page cache here")
	}
	c := volumetest.NewClient(v)
	mustWrite(t, c, block(1), 0, false)
	told := false
	v.sync = func([]byte) error {
		if told {
			return nil
		}
		told = true
		return unix.EIO
	}
	if err := c.Write(block(2), 64<<10, true); !errors.Is(err, blockdev.ErrMedium) {
		t.Fatalf("a write that isn't durable: %v", err)
	}
	if err := c.Flush(); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("flush of a block that was lost: %v", err)
	}
	if err := c.Write(block(3), 0, false); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("a write after that: %v", err)
	}
	got := make([]byte, 4096)
	if err := c.Read(got, 0); err != nil || got[0] != block(1)[0] {
		t.Errorf("read: %v", err)
	}
	if err := v.Close(); err == nil {
		t.Error("closed as if all were durable")
	}
}

// TestFailedSuper: if a superblock can't be written the other copy is left alone, however often it is tried, and an
// extent that it was to name isn't used, nor stays mapped. The volume grows when it is reopened.
func TestFailedSuper(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	v := mustOpen(t, path, blockdev.Options{Size: mib})
	if v.kind != onSync {
		t.Skip("no page cache here")
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()+16*mib); err != nil {
		t.Fatal(err)
	}
	generation, extents, size := v.super.generation, len(v.super.extents), v.Info().Size
	good := bytes.Clone(v.m.mem[generation%superCopies*superSize:][:superSize])
	sync := v.sync
	v.sync = func(b []byte) error {
		if len(b) == superSize {
			return unix.EIO
		}
		return sync(b)
	}
	for range 3 {
		if err := v.Refresh(); !errors.Is(err, unix.EIO) {
			t.Errorf("growing: %v", err)
		}
	}
	if !bytes.Equal(good, v.m.mem[generation%superCopies*superSize:][:superSize]) {
		t.Error("the good copy was overwritten")
	}
	if n := len(*v.m.more.Load()); n != 0 || v.super.generation != generation || len(v.super.extents) != extents || v.Info().Size != size {
		t.Errorf("%d mappings left, generation %d of %d, %d extents, %d bytes",
			n, v.super.generation, generation, len(v.super.extents), v.Info().Size)
	}
	if err := v.Close(); !errors.Is(err, unix.EIO) {
		t.Errorf("closing what can't be made durable: %v", err)
	}
	again := mustOpen(t, path, blockdev.Options{})
	if again.Info().Size <= size {
		t.Errorf("%d bytes in the end", again.Info().Size)
	}
	mustClose(t, again)
}

// TestFailedClose: if the last sync fails Close reports that, and the volume isn't left as if it had been closed
// cleanly: the next open must not regard any page of the durable map as written.
func TestFailedClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v")
	v := mustOpen(t, path, blockdev.Options{Size: mib})
	if v.kind != onSync {
		t.Skip("no page cache here")
	}
	mustWrite(t, volumetest.NewClient(v), block(1), 0, false)
	sync, failed := v.sync, false
	v.sync = func(b []byte) error {
		if failed {
			return sync(b)
		}
		failed = true
		return unix.EIO
	}
	if err := v.Close(); !errors.Is(err, unix.EIO) {
		t.Errorf("closed: %v", err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if s, errs := readSuper(&mapping{mem: b}); s == nil || s.session != unsure {
		t.Errorf("the superblock is %+v, %v", s, errs)
	}
	mustClose(t, mustOpen(t, path, blockdev.Options{}))
}

// TestKilledReadOnly: what a killed program wrote, and didn't flush, is only in the working maps. A read-only open sees
// it all the same, as does a check, and neither changes the file.
func TestKilledReadOnly(t *testing.T) {
	path, s := unflushed(t)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if r := mustCheck(t, path, false); !r.Open || r.Used != 8 || !r.Clean() || r.Repaired {
		t.Errorf("check: %+v", r)
	}
	wantBlocks(t, path, blockdev.Options{ReadOnly: true}, -1)
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("reading changed the file: %v", err)
	}
	// The blocks to allot are those that no entry names.
	v := mustOpen(t, path, blockdev.Options{})
	if want := int(s.extents[0].dataBlocks) - 8; v.free != want {
		t.Errorf("%d free blocks, want %d", v.free, want)
	}
	mustClose(t, v)
	wantBlocks(t, path, blockdev.Options{}, -1)
}

// TestKilledCopy: a working map counts in the file whose page cache it is in, and not in a copy.
func TestKilledCopy(t *testing.T) {
	path, _ := unflushed(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := path + "-copy"
	if err := os.WriteFile(other, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := mustCheck(t, other, false); r.Open || r.Used != 0 || !r.Clean() {
		t.Errorf("the copy: %+v", r)
	}
	wantBlocks(t, path, blockdev.Options{}, -1)
}

// TestKilledDamage: a damaged entry of the working map costs one logical block, and the repair carries over the others.
func TestKilledDamage(t *testing.T) {
	path, s := unflushed(t)
	patch(t, path, int64(s.extents[0].workOff)+2*entrySize, []byte{20, 0, 0, 0, 0, 0, 0x34, 0x12})
	if r := mustCheck(t, path, false); !r.Open || len(r.Damage) != 1 || r.Damage[0].Block != 2 {
		t.Errorf("check: %+v", r)
	}
	if r := mustCheck(t, path, true); !r.Repaired {
		t.Errorf("repair: %+v", r)
	}
	if r := mustCheck(t, path, false); r.Open || len(r.Damage) != 0 || r.Lost != 1 || r.Used != 7 {
		t.Errorf("after the repair: %+v", r)
	}
	wantBlocks(t, path, blockdev.Options{}, 2)
}

// unflushed makes a volume whose block i holds the byte i+1, in blocks 0 to 7, of a program that was killed before it
// flushed any of that.
func unflushed(t *testing.T) (path string, s superblock) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "v")
	v := mustOpen(t, path, blockdev.Options{Size: 4 * mib})
	if v.kind != onSync {
		v.Close()
		t.Skip("no working maps here")
	}
	c := volumetest.NewClient(v)
	for i := range 8 {
		mustWrite(t, c, block(i+1), int64(i)*4096, false)
	}
	s = v.super
	abandon(t, v)
	return path, s
}

// repairUnflushed repairs the volume that unflushed made, and finds all of its blocks.
func repairUnflushed(t *testing.T, path string) {
	t.Helper()
	if r := mustCheck(t, path, true); !r.Repaired {
		t.Errorf("repair: %+v", r)
	}
	if r := mustCheck(t, path, false); !r.Clean() || r.Open || r.Used != 8 {
		t.Errorf("after the repair: %+v", r)
	}
	wantBlocks(t, path, blockdev.Options{}, -1)
}

// TestKilledAndDamaged: a repair carries over what a killed program wrote, and also rewrites the other copy of the
// superblock.
func TestKilledAndDamaged(t *testing.T) {
	path, s := unflushed(t)
	patch(t, path, int64((s.generation+1)%superCopies*superSize), make([]byte, superSize))
	if r := mustCheck(t, path, false); !r.Open || len(r.Supers) != 1 || r.Used != 8 {
		t.Errorf("check: %+v", r)
	}
	repairUnflushed(t, path)
}

// TestKilledRepaired: a repair of a volume in which nothing is damaged carries over what a killed program wrote.
func TestKilledRepaired(t *testing.T) {
	path, _ := unflushed(t)
	repairUnflushed(t, path)
}

// TestOpenNotDurable: opening the volume of a killed program, whose file has grown, reports if the system can't make a
// part of what that takes durable.
func TestOpenNotDurable(t *testing.T) {
	for call, times := range map[uint32]int{unix.SYS_MSYNC: 8, unix.SYS_FDATASYNC: 1} {
		for before := range times {
			t.Run(fmt.Sprintf("call %d after %d", call, before), func(t *testing.T) {
				if !sandbox.Inside(t) {
					return
				}
				path, _ := unflushed(t)
				lengthen(t, path, 8*mib)
				failed := sandbox.FailLater(t, call, unix.EIO, before)
				v, err := Open(path, blockdev.Options{})
				if errors.Is(err, unix.EIO) != failed() {
					t.Errorf("%v; refused: %v", err, failed())
				}
				if err == nil {
					_ = v.Close() // may be what fails
				}
			})
		}
	}
}

// TestRepairNotDurable: a repair reports if the system can't make a part of it durable.
func TestRepairNotDurable(t *testing.T) {
	for call, times := range map[uint32]int{unix.SYS_MSYNC: 8, unix.SYS_FDATASYNC: 1} {
		for before := range times {
			t.Run(fmt.Sprintf("call %d after %d", call, before), func(t *testing.T) {
				if !sandbox.Inside(t) {
					return
				}
				path, s := unflushed(t)
				table := int64(s.extents[0].workOff)
				file, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				of5 := binary.LittleEndian.Uint64(file[table+5*entrySize:]) & entryMask
				patch(t, path, table+2*entrySize, binary.LittleEndian.AppendUint64(nil, s.sealed(2, of5)))
				patch(t, path, int64((s.generation+1)%superCopies*superSize), make([]byte, superSize))
				failed := sandbox.FailLater(t, call, unix.EIO, before)
				if _, err = Check(path, true); errors.Is(err, unix.EIO) != failed() {
					t.Errorf("repair: %v; refused: %v", err, failed())
				}
			})
		}
	}
}

// wantBlocks wants what unflushed wrote, except for one lost block.
func wantBlocks(t *testing.T, path string, o blockdev.Options, lost int) {
	t.Helper()
	v := mustOpen(t, path, o)
	defer mustClose(t, v)
	got := make([]byte, 4096)
	for i := range 8 {
		err := volumetest.NewClient(v).Read(got, int64(i)*4096)
		if i == lost && !errors.Is(err, blockdev.ErrMedium) || i != lost && (err != nil || !bytes.Equal(got, block(i+1))) {
			t.Errorf("block %d: %v, %d…", i, err, got[0])
		}
	}
}

// mapVolume maps the file of a volume.
func mapVolume(t *testing.T, path string) *mapping {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mapFile(f, size, false)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSessionNotRecorded: a volume isn't opened if its superblock can't say where the working maps are valid. If this
// program were killed, the next one would ignore what it wrote.
func TestSessionNotRecorded(t *testing.T) {
	if os.Getpagesize() > superSize {
		t.Skip("the copies of the superblock share a page here")
	}
	path, _ := filled(t)
	m := mapVolume(t, path)
	if m.ram || m.dax {
		t.Skip("no working maps here")
	}
	s, _ := readSuper(m)
	next := m.mem[(s.generation+1)%superCopies*superSize:][:superSize]
	if err := unix.Mprotect(next, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	v, err := openMapped(m, path, blockdev.Options{}, false, nil)
	if !errors.Is(err, errFault) {
		t.Errorf("opened: %v", err)
	}
	if err == nil {
		mustClose(t, v)
	} else if err := m.close(); err != nil {
		t.Error(err)
	}
}

// TestNoMemoryToTell: a volume whose program was killed isn't opened while the system lacks the memory to tell where its
// page cache is; once it has that again, each write is there.
func TestNoMemoryToTell(t *testing.T) {
	for name, call := range map[string]uint32{"readlink": unix.SYS_READLINKAT, "fstatfs": unix.SYS_FSTATFS} {
		t.Run(name, func(t *testing.T) {
			if !sandbox.Inside(t) {
				return
			}
			path := killedWriter(t)
			m := mapVolume(t, path)
			failed := sandbox.FailOnce(t, call, unix.ENOMEM)
			if _, err := openMapped(m, path, blockdev.Options{}, false, nil); !failed() || !errors.Is(err, unix.ENOMEM) {
				t.Errorf("opened: %v; refused: %v", err, failed())
			}
			if err := m.close(); err != nil {
				t.Fatal(err)
			}
			hasWritten(t, path)
		})
	}
}

// killedWriter returns a volume whose program was killed after it had written block 0.
func killedWriter(t *testing.T) (path string) {
	t.Helper()
	path, _ = filledIn(t, disk(t))
	v := mustOpen(t, path, blockdev.Options{})
	mustWrite(t, volumetest.NewClient(v), block(99), 0, false)
	abandon(t, v)
	return path
}

// hasWritten checks that what killedWriter's program wrote is there.
func hasWritten(t *testing.T, path string) {
	t.Helper()
	v := mustOpen(t, path, blockdev.Options{})
	got := make([]byte, 4096)
	if err := volumetest.NewClient(v).Read(got, 0); err != nil || !bytes.Equal(got, block(99)) {
		t.Errorf("what was written: %v, %d…", err, got[0])
	}
	mustClose(t, v)
}

// TestNoDescriptor: a volume whose program was killed isn't opened if descriptors are used up, so that it can't be
// determined whether the page cache has its working map; once there are some again, each write is there.
func TestNoDescriptor(t *testing.T) {
	if !sandbox.Inside(t) {
		return
	}
	path := killedWriter(t)
	var was unix.Rlimit
	free, err := unix.Open(path, unix.O_RDONLY, 0)
	if err = errors.Join(err, unix.Close(free), unix.Getrlimit(unix.RLIMIT_NOFILE, &was)); err != nil {
		t.Fatal(err)
	}
	m := mapVolume(t, path)
	now := was
	now.Cur = uint64(free) + 1 // the file's own is the last
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	_, err = openMapped(m, path, blockdev.Options{}, false, nil)
	_, readErr := openMapped(m, path, blockdev.Options{ReadOnly: true}, false, nil)
	_, checkErr := checkMapped(m, path, true)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EMFILE) || !errors.Is(readErr, unix.EMFILE) {
		t.Errorf("opened without descriptors: %v; read-only: %v", err, readErr)
	}
	if !errors.Is(checkErr, unix.EMFILE) {
		t.Errorf("repaired without descriptors: %v", checkErr)
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	hasWritten(t, path)
}
