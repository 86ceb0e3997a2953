package blockdev_test

import (
	"errors"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type opener = func(blockdev.Options) (blockdev.Volume, error)

func TestMemory(t *testing.T) {
	volumetest.Run(t, volumetest.Config{
		New:      func(*testing.T) opener { return blockdev.NewMemory },
		Volatile: true,
		Size:     16 << 20,
	})
}

// TestExampleVolume: the volume that is an example to others passes the suite itself.
func TestExampleVolume(t *testing.T) {
	volumetest.Run(t, volumetest.Config{
		New:      func(*testing.T) opener { return newSparse },
		Volatile: true,
	})
}

func TestNull(t *testing.T) {
	volumetest.Run(t, volumetest.Config{
		New:     func(*testing.T) opener { return blockdev.NewNull },
		Forgets: true,
	})
}

// filesIn opens files of dir, or of the test's own directory, in an I/O mode.
func filesIn(dir string, mode blockdev.IOMode) func(t *testing.T) opener {
	return func(t *testing.T) opener {
		d := dir
		if d == "" {
			d = t.TempDir()
		}
		path := filepath.Join(d, "volume")
		return func(o blockdev.Options) (blockdev.Volume, error) {
			o.IO = mode
			return blockdev.OpenFile(path, o)
		}
	}
}

func TestFileBuffered(t *testing.T) {
	volumetest.Run(t, volumetest.Config{New: filesIn("", blockdev.IOBuffered)})
}

func TestFileDirect(t *testing.T) { runDirect(t, blockdev.IODirect) }

func TestFileUring(t *testing.T) { runDirect(t, blockdev.IOUring) }

// runDirect runs the suite in a mode that isn't available everywhere, nor with every block size: a disk may have
// sectors of 4096 bytes.
func runDirect(t *testing.T, mode blockdev.IOMode) {
	var blocks []int
	for _, bs := range volumetest.BlockSizes {
		v, err := filesIn("", mode)(t)(blockdev.Options{Size: 1 << 20, BlockSize: bs})
		if err != nil {
			t.Logf("blocks of %d bytes in the temporary directory: %v", bs, err)
			continue
		}
		t.Log(v.Info().Mode)
		v.Close()
		blocks = append(blocks, bs)
	}
	if blocks == nil {
		t.Skip("not in the temporary directory")
	}
	volumetest.Run(t, volumetest.Config{New: filesIn("", mode), Blocks: blocks})
}

// TestRegister reads and writes through registered and unregistered memory while memory is registered and unregistered.
func TestRegister(t *testing.T) {
	v, err := blockdev.OpenFile(filepath.Join(t.TempDir(), "v"), blockdev.Options{Size: 1 << 20, IO: blockdev.IOUring})
	if err != nil {
		t.Skip(err)
	}
	defer v.Close()
	t.Log(v.Info().Mode)
	mem, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	g, ok := v.(blockdev.Registrar)
	if !ok {
		t.Fatal("a file isn't told of memory")
	}
	c := volumetest.NewClient(v)
	round := func(b []byte, off int64, fill byte) {
		t.Helper()
		for i := range b {
			b[i] = fill
		}
		if err := c.Write(b, off, false); err != nil {
			t.Fatal(err)
		}
		clear(b)
		if err := c.Read(b, off); err != nil {
			t.Fatal(err)
		}
		if b[0] != fill || b[len(b)-1] != fill {
			t.Fatalf("read %d and %d, want %d", b[0], b[len(b)-1], fill)
		}
	}
	first := g.Register(mem[:256<<10])
	second := g.Register(mem[512<<10 : 768<<10])
	for i := range 16 {
		at := i * 64 << 10 // inside, between and behind the two
		round(mem[at:at+64<<10], 4096, byte(i+1))
	}
	round(mem[192<<10:320<<10], 0, 99) // across an end
	first()
	round(mem[:128<<10], 0, 100)
	second()
	round(mem[512<<10:640<<10], 0, 101)
	g.Register(nil)()
}

// TestNullViews: a view of a null volume, too, has no more pieces than a transport counts on.
func TestNullViews(t *testing.T) {
	v, err := blockdev.NewNull(blockdev.Options{Size: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	m := v.(blockdev.Memory)
	const most = blockdev.MaxSegments * 2 << 20
	segs, token, err := m.View(nil, 0, most)
	if err != nil || len(segs) != blockdev.MaxSegments {
		t.Fatalf("%d pieces, %v", len(segs), err)
	}
	m.Release(token)
	if segs, _, err := m.View(nil, 0, most+4096); !errors.Is(err, blockdev.ErrBusy) || len(segs) > 0 {
		t.Errorf("%d pieces, %v; want %v", len(segs), err, blockdev.ErrBusy)
	}
}
