package target

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// testVolume is a volume in memory whose behaviour the test chooses. It is not a
// blockdev.Memory.
type testVolume struct {
	info blockdev.Info

	mu      sync.Mutex
	data    []byte
	late    bool                          // complete from another goroutine
	fail    func(*blockdev.Request) error // nil: succeed
	hold    bool                          // keep requests until release
	held    []*blockdev.Request
	arrived chan struct{} // signaled for each request held
	log     []blockdev.Op
	fua     int
	sizes   blockdev.SizeWatchers
}

func newTestVolume(size int64, block int) *testVolume {
	return &testVolume{
		info: blockdev.Info{Kind: "test", Size: size, BlockSize: block, PhysBlock: max(block, 4096), Align: 1,
			VolatileCache: true, AtomicBlocks: 8, Discard: true, ZeroAfterDiscard: true},
		data:    make([]byte, size),
		arrived: make(chan struct{}, 1024),
	}
}

func (v *testVolume) Info() blockdev.Info { return v.info }
func (v *testVolume) Close() error        { return nil }
func (v *testVolume) Refresh() error      { v.sizes.Tell(v.info.Size); return nil }
func (v *testVolume) OnResize(f func(int64)) func() {
	return v.sizes.Add(f)
}
func (v *testVolume) ops() (log []blockdev.Op) { v.mu.Lock(); defer v.mu.Unlock(); return v.log }
func (v *testVolume) setHold(hold bool)        { v.mu.Lock(); v.hold = hold; v.mu.Unlock() }
func (v *testVolume) setFail(err error) {
	v.mu.Lock()
	v.fail = func(*blockdev.Request) error { return err }
	v.mu.Unlock()
}

// flickering is a volume that shrinks and grows back while the first who watches its size asks for it.
type flickering struct {
	*testVolume
	due bool
}

func (v *flickering) OnResize(f func(int64)) func() {
	v.due = true
	return v.testVolume.OnResize(f)
}

func (v *flickering) Info() blockdev.Info {
	seen := v.info
	if v.due {
		v.due = false
		seen.Size /= 2
		v.sizes.Tell(seen.Size)
		v.sizes.Tell(v.info.Size)
	}
	return seen
}

// TestSizeMeanwhile: a size that is looked up when a namespace is added doesn't replace one that its volume has told of
// since.
func TestSizeMeanwhile(t *testing.T) {
	tg := newTarget(t)
	ns, err := tg.Subsystem(testNQN).AddNamespace(NamespaceConfig{NSID: 9, Volume: &flickering{testVolume: newTestVolume(1<<20, 512)}})
	if err != nil {
		t.Fatal(err)
	}
	if n := ns.blocks.Load(); n != 1<<20/512 {
		t.Errorf("%d blocks", n)
	}
}

func (v *testVolume) Submit(r *blockdev.Request) {
	v.mu.Lock()
	if v.hold {
		v.held = append(v.held, r)
		v.mu.Unlock()
		v.arrived <- struct{}{}
		return
	}
	late := v.late
	v.mu.Unlock()
	if late {
		go v.execute(r)
		return
	}
	v.execute(r)
}

// release executes what was held, and lets everything through from now on.
func (v *testVolume) release() {
	v.mu.Lock()
	held := v.held
	v.hold, v.held = false, nil
	v.mu.Unlock()
	for _, r := range held {
		v.execute(r)
	}
}

func (v *testVolume) execute(r *blockdev.Request) {
	v.mu.Lock()
	v.log = append(v.log, r.Op)
	if r.FUA {
		v.fua++
	}
	var err error
	if v.fail != nil {
		err = v.fail(r)
	}
	if err == nil {
		err = blockdev.Check(&v.info, int64(len(v.data)), r)
	}
	if err == nil {
		for _, b := range r.Bufs {
			if uintptr(unsafe.Pointer(unsafe.SliceData(b)))&uintptr(v.info.Align-1) != 0 {
				err = v.info.Fail(r.Op, r.Offset, blockdev.ErrInvalid, nil)
			}
		}
	}
	if err == nil {
		mem := v.data[r.Offset : r.Offset+r.Length]
		switch r.Op {
		case blockdev.OpRead:
			r.CopyIn(mem, 0)
		case blockdev.OpWrite:
			r.CopyOut(mem, 0)
		case blockdev.OpDiscard, blockdev.OpWriteZeroes:
			clear(mem)
		}
	}
	v.mu.Unlock()
	r.End(err)
}

func memVolume(t testing.TB, size int64, block int) blockdev.Volume {
	t.Helper()
	v, err := blockdev.NewMemory(blockdev.Options{Size: size, BlockSize: block})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}
