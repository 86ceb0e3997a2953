package persist

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/disktest"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
)

// setSum gives a superblock the checksum that its content has.
func setSum(b []byte) {
	clear(b[offSum : offSum+4])
	binary.LittleEndian.PutUint32(b[offSum:], crc32.Checksum(b, castagnoli))
}

func testSuper() *superblock {
	return &superblock{
		generation: 3, blockSize: 4096,
		id:      [16]byte{0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18},
		session: session{boot: [16]byte{0xb0, 15: 0xbf}, dev: 0xfd01, inode: 77, mount: 0x1a2b},
		extents: []extentRecord{layOut(0, headSize, 2560, 4096, false), layOut(2560, 16<<20, 100, 4096, false)},
	}
}

// TestSuperGolden pins the bytes that docs/pmem.md describes.
func TestSuperGolden(t *testing.T) {
	b := testSuper().encode()
	if len(b) != superSize {
		t.Fatalf("%d bytes", len(b))
	}
	for _, x := range []struct {
		off  int
		want string
	}{
		{0, "4e564d45504d454d" + "01000000"},
		{16, "0300000000000000" + "00100000" + "02000000"},
		{32, "10111213141516171800000000000000"},
		{48, "b00000000000000000000000000000bf" + "01fd000000000000" + "4d00000000000000" + "2b1a000000000000"},
		// 2560 blocks from 0 on; maps of 20480 bytes at 8192 and 28672; 3584 blocks at 49152
		{128, "0000000000000000" + "000a000000000000" + "0020000000000000" + "0070000000000000" + "00c0000000000000" + "000e000000000000"},
		{176, "000a000000000000" + "6400000000000000" + "0000000100000000" + "0010000100000000" + "0020000100000000" + "6700000000000000"},
	} {
		want, _ := hex.DecodeString(x.want)
		if got := b[x.off : x.off+len(want)]; !bytes.Equal(got, want) {
			t.Errorf("at %d: %x, want %x", x.off, got, want)
		}
	}
	s, err := parseSuper(b)
	if err != nil || s.check(32<<20) != nil {
		t.Fatalf("%v, %v", err, s.check(32<<20))
	}
	if again := s.encode(); !bytes.Equal(again, b) {
		t.Error("encoding again gives something else")
	}
	for i := range b {
		b[i] ^= 1
		if _, err := parseSuper(b); err == nil {
			t.Fatalf("byte %d isn't covered", i)
		}
		b[i] ^= 1
	}
}

// TestEntryGolden pins the check of an entry.
func TestEntryGolden(t *testing.T) {
	// By the formula of docs/pmem.md, calculated separately.
	for _, x := range []struct{ salt, lba, p, want uint64 }{
		{0, 0, 0, 0},
		{0, 1, 1, 0x9068},
		{0x1716151413121110, 5, 300, 0xfa99},
	} {
		if got := entryCheck(x.salt, x.lba, x.p); got != x.want {
			t.Errorf("salt %#x, block %d at %d: %#x, want %#x", x.salt, x.lba, x.p, got, x.want)
		}
	}
}

// TestSuperCheck refuses impossible extents.
func TestSuperCheck(t *testing.T) {
	for name, spoil := range map[string]func(*superblock){
		"block size":   func(s *superblock) { s.blockSize = 1000 },
		"small blocks": func(s *superblock) { s.blockSize = 256 },
		"no blocks":    func(s *superblock) { s.extents[1].blocks = 0 },
		"large blocks": func(s *superblock) {
			s.blockSize, s.extents = 128<<10, []extentRecord{layOut(0, headSize, 10, 128<<10, false)}
		},
		"gap":                  func(s *superblock) { s.extents[1].first++ },
		"overlap":              func(s *superblock) { s.extents[1].tableOff = s.extents[0].dataOff },
		"map in head":          func(s *superblock) { s.extents[0].tableOff = 4096 },
		"small map":            func(s *superblock) { s.extents[0].workOff = s.extents[0].tableOff + 4096 },
		"small work map":       func(s *superblock) { s.extents[0].dataOff = s.extents[0].workOff + 4096 },
		"work map over blocks": func(s *superblock) { s.extents[1].workOff = s.extents[0].dataOff },
		"blocks over maps":     func(s *superblock) { s.extents[1].dataOff = s.extents[1].tableOff },
		"unaligned":            func(s *superblock) { s.extents[1].dataOff += 512 },
		"no spare":             func(s *superblock) { s.extents[1].dataBlocks = s.extents[1].blocks - 1 },
		"cut":                  func(s *superblock) { s.extents[1].dataBlocks = 1 << 20 },
		"huge":                 func(s *superblock) { s.extents[1].dataBlocks = 1 << 62 },
		"far":                  func(s *superblock) { s.extents[1].dataOff = 1<<64 - 4096 },
	} {
		s := testSuper()
		spoil(s)
		if err := s.check(32 << 20); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	s := testSuper()
	s.extents[0].dataBlocks = s.extents[0].blocks
	if err := s.check(32 << 20); err != nil {
		t.Errorf("without spare blocks: %v", err)
	}
}

// TestExtentsMost: a superblock has 1 to 64 extents.
func TestExtentsMost(t *testing.T) {
	for n, valid := range map[byte]bool{0: false, 1: true, maxExtents: true, maxExtents + 1: false, 200: false} {
		b := testSuper().encode()
		b[offExtents] = n
		setSum(b)
		if _, err := parseSuper(b); (err == nil) != valid {
			t.Errorf("%d extents: %v", n, err)
		}
	}
}

// TestSpare: a volume has as many spare blocks as docs/pmem.md says.
func TestSpare(t *testing.T) {
	const gib = 1 << 30
	for _, bs := range []int{512, 4096} {
		for _, x := range []struct{ size, spare, spareCached, spareLater, spareLaterCached uint64 }{
			{mib, 4 * mib, 4 * mib, mib / 32, mib},
			{32 * mib, 4 * mib, 40 * mib, mib, 32 * mib},
			{256 * mib, 8 * mib, 272 * mib, 8 * mib, 256 * mib},
			{gib, 32 * mib, gib + 16*mib, 32 * mib, gib},
			{16 * gib, 512 * mib, gib + 16*mib, 512 * mib, gib},
			{64 * gib, gib, gib + 16*mib, gib, gib},
		} {
			for _, y := range []struct {
				first  uint64
				cached bool
				want   uint64
			}{{0, false, x.spare}, {0, true, x.spareCached}, {1, false, x.spareLater}, {1, true, x.spareLaterCached}} {
				n := x.size / uint64(bs)
				rec := layOut(y.first, headSize, n, bs, y.cached)
				if got := (rec.dataBlocks - n) * uint64(bs); rec.blocks != n || got != y.want/uint64(bs)*uint64(bs) {
					t.Errorf("%d bytes in blocks of %d from %d on, in a page cache %v: %d bytes of spare blocks, want %d",
						x.size, bs, y.first, y.cached, got, y.want)
				}
				if huge := uint64(2 * mib); x.size >= 64*mib && rec.dataOff%huge != 0 {
					t.Errorf("%d bytes in blocks of %d: they begin at byte %d, amid a large page", x.size, bs, rec.dataOff)
				}
			}
		}
	}
}

func FuzzSuper(tf *testing.F) {
	f := fuzzing.New(tf)
	f.Add(testSuper().encode(), uint64(32<<20))
	f.Fuzz(func(t *testing.T, b []byte, size uint64) {
		if len(b) >= superSize { // give the parser something to read
			s := &superblock{}
			sum := s.encode()
			copy(b[:offVersion+4], sum[:offVersion+4])
			setSum(b[:superSize])
		}
		s, err := parseSuper(b)
		if err != nil {
			return
		}
		again, err := parseSuper(s.encode())
		if err != nil || again.generation != s.generation || !slices.Equal(again.extents, s.extents) || again.session != s.session {
			t.Fatalf("%v: %+v and %+v", err, s, again)
		}
		if s.check(size) == nil && s.end() > max(size, headSize) {
			t.Fatalf("ends at %d of %d", s.end(), size)
		}
	})
}

// TestFit wants the largest extent that fits, and no larger one.
func TestFit(t *testing.T) {
	for range 500 {
		bs := 512 << rand.IntN(8)
		cached := rand.IntN(2) == 0
		off, size := uint64(headSize+rand.IntN(1<<20)), rand.Uint64N(1<<uint(24+rand.IntN(16)))
		x, ok := fit(0, off, off+size, bs, cached)
		if !ok {
			if x := layOut(0, off, 1, bs, cached); x.end(bs) <= off+size {
				t.Fatalf("%d bytes with blocks of %d: one fits", size, bs)
			}
			continue
		}
		if same, ok := fit(0, off, x.end(bs), bs, cached); !ok || same != x {
			t.Fatalf("in exactly the space of %d blocks of %d fit %d", x.blocks, bs, same.blocks)
		}
		next := layOut(0, off, x.blocks+1, bs, cached)
		if x.end(bs) > off+size || next.end(bs) <= off+size {
			t.Fatalf("%d bytes with blocks of %d: %d blocks end at %d", size, bs, x.blocks, x.end(bs)-off)
		}
		s := superblock{blockSize: bs, extents: []extentRecord{x}}
		if err := s.check(off + size); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBitset compares a set with a map.
func TestBitset(t *testing.T) {
	for _, n := range []int{1, 2, 63, 64, 65, 4095, 4096, 4097, 300000} {
		s, all := newBitset(n), map[int]bool{}
		if rand.IntN(2) == 0 {
			s.fill(n)
			for i := range n {
				all[i] = true
			}
		}
		for range 3000 {
			i := rand.IntN(n)
			if rand.IntN(2) == 0 {
				if s.add(i) == all[i] {
					t.Fatalf("add %d of %d", i, n)
				}
				all[i] = true
			} else {
				if s.remove(i) != all[i] {
					t.Fatalf("remove %d of %d", i, n)
				}
				delete(all, i)
			}
			from, most := rand.IntN(n), 1+rand.IntN(200)
			want := from
			for want < n && want < from+5000 && !all[want] {
				want++
			}
			if got := s.next(from); want < n && all[want] && got != want || want == n && got != -1 {
				t.Fatalf("next from %d of %d: %d, want %d", from, n, got, want)
			}
			run := 0
			for run < most && all[from+run] {
				run++
			}
			if got := s.run(from, most); got != run {
				t.Fatalf("run from %d: %d, want %d", from, got, run)
			}
		}
		members := 0
		for i := s.next(0); i >= 0; i = s.next(i + 1) {
			members++
		}
		if members != len(all) {
			t.Fatalf("%d members, want %d", members, len(all))
		}
		if s.empty(); s.next(0) != -1 {
			t.Fatal("not empty")
		}
	}
}

// TestLaterFormat: a volume to which a later program has written last is refused, and left as it is, though the other
// copy of the superblock is still older; if this program has written last, the later copy is a damaged one.
func TestLaterFormat(t *testing.T) {
	for _, x := range []struct {
		ahead   int // in generations, the copy that has version 2
		refused bool
	}{{1, true}, {3, true}, {-1, false}} {
		path, s := filled(t)
		later := *s
		later.generation += uint64(x.ahead)
		b := later.encode()
		b[offVersion] = 2
		setSum(b)
		patch(t, path, int64(later.generation%superCopies*superSize), b)
		before, _ := os.ReadFile(path)
		_, err := Check(path, x.refused) // with repair
		if err == nil {
			err = tryOpen(t, path)
		}
		if (err != nil) != x.refused || err != nil && !strings.Contains(err.Error(), "version 2") {
			t.Errorf("%d generations ahead: %v", x.ahead, err)
		}
		if x.refused && tryOpen(t, path) == nil {
			t.Errorf("%d generations ahead: opened", x.ahead)
		}
		if now, _ := os.ReadFile(path); x.refused && !bytes.Equal(now, before) {
			t.Errorf("%d generations ahead: the file was changed", x.ahead)
		}
	}
}

// TestLaterFormatOnly: a volume that a later program made, and that has no copy of this format, is refused as such.
func TestLaterFormatOnly(t *testing.T) {
	path, s := filled(t)
	b := s.encode()
	b[offVersion] = 2
	setSum(b)
	for i := range int64(superCopies) {
		patch(t, path, i*superSize, b)
	}
	if err := tryOpen(t, path); err == nil || !strings.Contains(err.Error(), "its format has version 2, this program knows 1: use a later one") {
		t.Error(err)
	}
}

// TestVolumeGolden opens a volume that is made here byte by byte as docs/pmem.md says, as any version 1 may have left it.
func TestVolumeGolden(t *testing.T) {
	le := binary.LittleEndian
	super := make([]byte, 4096)
	copy(super, "NVMEPMEM")
	le.PutUint32(super[8:], 1)  // version
	le.PutUint64(super[16:], 7) // generation: this is the second copy
	le.PutUint32(super[24:], 4096)
	le.PutUint32(super[28:], 1)
	copy(super[32:], "\x10\x11\x12\x13\x14\x15\x16\x17")
	for i, v := range []uint64{0, 256, 8192, 12288, 16384, 1280} {
		le.PutUint64(super[128+8*i:], v)
	}
	setSum(super)
	path := filepath.Join(t.TempDir(), "v")
	if err := os.WriteFile(path, make([]byte, 16384+1280*4096), 0o600); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("golden.."), 512)
	patch(t, path, 4096, super)
	patch(t, path, 8192+8*5, []byte{0x2c, 1, 0, 0, 0, 0, 0x99, 0xfa})                // block 5 is at 300
	patch(t, path, 8192+8*6, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xda, 0xf6}) // block 6 was given up
	patch(t, path, 300*4096, data)

	v := mustOpen(t, path, blockdev.Options{})
	defer mustClose(t, v)
	c, got := volumetest.NewClient(v), make([]byte, 4096)
	for lba, want := range map[int64][]byte{4: make([]byte, 4096), 5: data} {
		if err := c.Read(got, lba*4096); err != nil || !bytes.Equal(got, want) {
			t.Errorf("block %d: %.8q, %v", lba, got, err)
		}
	}
	if err := c.Read(got, 6*4096); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("block 6: %v", err)
	}
	if v.super.generation < 7 || v.Info().Size != 256*4096 { // a session, where syncs need one, makes the eighth
		t.Errorf("generation %d, %d bytes", v.super.generation, v.Info().Size)
	}
}

// TestInPlaceSpares: a volume that writes in place would destroy isn't opened for them, whichever copy of the
// superblock is left.
func TestInPlaceSpares(t *testing.T) {
	for i := range int64(superCopies) {
		path, _ := filled(t)
		patch(t, path, i*superSize, make([]byte, superSize))
		if v, err := inPlace(path, blockdev.Options{}); !errors.Is(err, blockdev.ErrInvalid) {
			t.Errorf("without copy %d: %v", i, err)
			if err == nil {
				mustClose(t, v)
			}
		}
	}
	path, _ := filled(t)
	if err := os.Truncate(path, headSize); err != nil {
		t.Fatal(err)
	}
	if v, err := inPlace(path, blockdev.Options{}); !errors.Is(err, blockdev.ErrInvalid) {
		t.Errorf("cut behind the superblocks: %v", err)
		if err == nil {
			mustClose(t, v)
		}
	}
}

// TestInPlaceSmall: a file that is too small for a superblock can be used in place.
func TestInPlaceSmall(t *testing.T) {
	path := filepath.Join(shm(t), "v")
	if err := os.WriteFile(path, make([]byte, 512), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := inPlace(path, blockdev.Options{BlockSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, v)
}

// tryOpen opens a volume, and closes it.
func tryOpen(t *testing.T, path string) error {
	t.Helper()
	v, err := Open(path, blockdev.Options{})
	if err == nil {
		mustClose(t, v)
	}
	return err
}

// TestInPlaceUnreadable: a device whose beginning can't be read isn't reported to hold a volume.
func TestInPlaceUnreadable(t *testing.T) {
	image := disktest.Image(t, mib)
	dev := disktest.LoopDevice(t, image)
	if err := os.Truncate(image, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := inPlace(dev, blockdev.Options{}); !errors.Is(err, blockdev.ErrMedium) {
		t.Errorf("got %v", err)
	}
}

func TestNoFormat(t *testing.T) {
	for _, b := range [][]byte{nil, make([]byte, 100), make([]byte, superSize)} {
		if _, err := parseSuper(b); !errors.Is(err, ErrNoVolume) {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	}
	later := testSuper().encode()
	later[offVersion] = 2
	setSum(later)
	if _, err := parseSuper(later); err == nil || errors.Is(err, ErrNoVolume) || errors.Is(err, errSum) {
		t.Errorf("a later version: %v", err)
	}
}
