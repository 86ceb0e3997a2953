package target

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

// registering is a volume that wants to know about memory.
type registering struct {
	*testVolume
	known    atomic.Int32
	watchers atomic.Int32
}

func (v *registering) OnResize(f func(int64)) (stop func()) {
	v.watchers.Add(1)
	leave := v.testVolume.OnResize(f)
	return func() {
		leave()
		v.watchers.Add(-1)
	}
}

func (v *registering) Register([]byte) (unregister func()) {
	v.known.Add(1)
	return func() { v.known.Add(-1) }
}

// showing is a volume in memory of which nothing is read.
type showing struct {
	blockdev.Memory
	regions []*blockdev.Region
}

func (v *showing) Info() blockdev.Info         { return newTestVolume(1<<20, 512).info }
func (v *showing) Regions() []*blockdev.Region { return v.regions }

// TestRegionsForgotten: a transport is told about the memory of a volume when the volume is no longer a namespace, and
// not before.
func TestRegionsForgotten(t *testing.T) {
	v := &showing{regions: []*blockdev.Region{{}, {}}}
	tg := newTarget(t)
	var gone []*blockdev.Region
	b := newBuffers(t, tg, func(r *blockdev.Region) { gone = append(gone, r) })
	defer b.Close()
	sub := tg.Subsystem(testNQN)
	for range 2 {
		if _, err := sub.AddNamespace(NamespaceConfig{Volume: v}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sub.AddNamespace(NamespaceConfig{NSID: 1, Volume: v}); !errors.Is(err, ErrExists) {
		t.Fatal(err)
	}
	if err := sub.RemoveNamespace(1); err != nil || len(gone) != 0 {
		t.Fatalf("%v; %d regions forgotten of a volume that is a namespace", err, len(gone))
	}
	if err := sub.RemoveNamespace(2); err != nil || !slices.Equal(gone, v.Regions()) {
		t.Errorf("%v; %d regions forgotten", err, len(gone))
	}
}

// TestBuffersForgotten: a volume knows each piece of a transport's memory once while it is one namespace, or several,
// and none afterwards; a removed subsystem leaves nothing either.
func TestBuffersForgotten(t *testing.T) {
	v := &registering{testVolume: newTestVolume(1<<20, 512)}
	tg := newTarget(t)
	b := newBuffers(t, tg, nil)
	defer b.Close()
	know := func(what string, n int32) {
		t.Helper()
		if got := v.known.Load(); got != n {
			t.Errorf("%s: the volume knows of %d pieces, want %d", what, got, n)
		}
	}
	sub := tg.Subsystem(testNQN)
	b.Add(make([]byte, 4096))
	for range 3 {
		for range 2 {
			if _, err := sub.AddNamespace(NamespaceConfig{Volume: v}); err != nil {
				t.Fatal(err)
			}
		}
		know("two namespaces", 1)
		if err := sub.RemoveNamespace(1); err != nil {
			t.Fatal(err)
		}
		know("one namespace", 1)
		if err := sub.RemoveNamespace(2); err != nil {
			t.Fatal(err)
		}
		know("none", 0)
	}
	if _, err := sub.AddNamespace(NamespaceConfig{Volume: v}); err != nil {
		t.Fatal(err)
	}
	b.Add(make([]byte, 4096))
	know("more memory", 2)
	if err := tg.RemoveSubsystem(testNQN); err != nil {
		t.Fatal(err)
	}
	know("no subsystem", 0)
	b.Add(make([]byte, 4096))
	know("still more memory", 0)
}

// TestVolumesLetGo: a volume, which may continue to be used, knows nothing of a target that is closed, or of one that
// couldn't take the subsystem that it was for.
func TestVolumesLetGo(t *testing.T) {
	v := &registering{testVolume: newTestVolume(1<<20, 512)}
	watchers := func(what string, want int32) {
		t.Helper()
		if n := v.watchers.Load(); n != want {
			t.Errorf("%s: %d watch the volume's size, want %d", what, n, want)
		}
		if n := v.known.Load(); n != min(want, 1) {
			t.Errorf("%s: the volume knows of %d pieces of memory, want %d", what, n, min(want, 1))
		}
	}
	tg := newTarget(t)
	b := newBuffers(t, tg, nil)
	defer b.Close()
	b.Add(make([]byte, 4096))
	twice := SubsystemConfig{NQN: testNQN + "2", Namespaces: []NamespaceConfig{{NSID: 2, Volume: v}, {Volume: v}, {NSID: 1, Volume: v}}}
	if _, err := tg.AddSubsystem(twice); !errors.Is(err, ErrExists) {
		t.Fatal(err)
	}
	watchers("after a subsystem that was refused", 0)
	sub := tg.Subsystem(testNQN)
	for range 2 {
		if _, err := sub.AddNamespace(NamespaceConfig{Volume: v}); err != nil {
			t.Fatal(err)
		}
	}
	watchers("two namespaces", 2)
	var closing sync.WaitGroup
	for range 2 {
		closing.Go(func() {
			if err := tg.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	closing.Wait()
	watchers("after Close", 0)
	if err := sub.RemoveNamespace(1); err != nil {
		t.Error(err)
	}
	if err := tg.RemoveSubsystem(testNQN); err != nil {
		t.Error(err)
	}
	watchers("removed after Close", 0)
}

// TestAddNamespaceTooLate: a namespace of a subsystem that was removed, or of a target that is closed, would be
// unreachable, and never removed.
func TestAddNamespaceTooLate(t *testing.T) {
	v := &registering{testVolume: newTestVolume(1<<20, 512)}
	tg := newTarget(t)
	gone := tg.Subsystem(testNQN)
	if err := tg.RemoveSubsystem(testNQN); err != nil {
		t.Fatal(err)
	}
	left, err := tg.AddSubsystem(SubsystemConfig{NQN: testNQN, AllowAnyHost: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.AddNamespace(NamespaceConfig{Volume: v}); !errors.Is(err, ErrRemoved) {
		t.Errorf("to a subsystem that was removed: %v", err)
	}
	if err := tg.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := left.AddNamespace(NamespaceConfig{Volume: v}); !errors.Is(err, ErrClosed) {
		t.Errorf("to a target that is closed: %v", err)
	}
	if n := v.watchers.Load(); n != 0 {
		t.Errorf("%d watch the volume's size", n)
	}
}

// newBuffers returns the Buffers of a transport.
func newBuffers(t *testing.T, tg *Target, gone func(*blockdev.Region)) *Buffers {
	t.Helper()
	b, err := tg.NewBuffers(gone)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
