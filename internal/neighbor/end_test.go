//go:build linux

package neighbor

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestEnd: when a table ends so does the link, with everything that was to be sent through it; the other one may come
// back.
func TestEnd(t *testing.T) {
	for _, ends := range []string{"the lower", "the higher"} {
		t.Run(ends, func(t *testing.T) {
			a, b, _, _ := linked(t)
			end, other, peer := a, b, low
			if ends == "the higher" {
				end, other, peer = b, a, high
			}
			for range 2 {
				if err := end.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if end.Link(other.self) != nil {
				t.Error("a closed table has a link")
			}
			if !soon.Until(func() bool { return !other.Linked() }) || other.Link(peer) != nil {
				t.Fatal("the link has outlived a neighbor")
			}
			other.mu.Lock()
			pause := other.tried[peer].pause
			other.mu.Unlock()
			if pause != 0 {
				t.Errorf("the pauses between attempts go on with %v though there was a link", pause)
			}
			again := table(t, peer)
			if !soon.Until(func() bool {
				here, there := again.Link(other.self), other.Link(peer)
				return here != nil && there != nil
			}) {
				t.Error("a neighbor that came back isn't found")
			}
		})
	}
}

// TestLastWords: what was put before a neighbor ended arrives, as what has reached a socket does; then the link is
// forgotten. The neighbor may come back at once.
func TestLastWords(t *testing.T) {
	a, b, toB, _ := linked(t)
	send(t, toB, "fare")
	send(t, toB, "well")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if !soon.Until(func() bool { return b.Link(low) == nil }) {
		t.Fatal("the link has outlived a neighbor")
	}
	if b.Sleep() {
		t.Error("may sleep though there is something")
	}
	if got := taken(t, b, low) + taken(t, b, low); got != "farewell" {
		t.Errorf("b got %q", got)
	}
	if b.Take(make([]Train, 1)); b.Linked() {
		t.Error("the link is still known when all was taken")
	}
	if answered, _, _ := offerTo(t, b, low); !answered {
		t.Error("the neighbor isn't answered when it comes back")
	}
}

// TestReadAfterEnd: what was taken stays readable when the link is over and nothing refers to its memory any more.
func TestReadAfterEnd(t *testing.T) {
	a, b, toB, _ := linked(t)
	send(t, toB, "still here")
	var got [1]Train
	if b.Take(got[:]) != 1 {
		t.Fatal("nothing there")
	}
	_ = a.Close()
	if !soon.Until(func() bool { return b.Link(low) == nil }) {
		t.Fatal("the link has outlived a neighbor")
	}
	for range 3 {
		runtime.GC()
	}
	if string(got[0].Bytes) != "still here" {
		t.Errorf("read %q", got[0].Bytes)
	}
	runtime.KeepAlive(b)
}

// mappings counts those of all links in this process.
func mappings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(maps, []byte("nvmeof rings"))
}

// TestUnmapped: memory of links that are over is unmapped.
func TestUnmapped(t *testing.T) {
	a, b, _, _ := linked(t)
	if mappings(t) == 0 {
		t.Fatal("no memory is mapped")
	}
	_ = a.Close()
	_ = b.Close()
	a, b = nil, nil //nolint:wastedassign // lets go of the links
	if !soon.Until(func() bool { runtime.GC(); return mappings(t) == 0 }) {
		t.Errorf("%d mappings are left", mappings(t))
	}
}

// TestManyEnd: neighbors that come and go don't accumulate memory, even if nothing else triggers the garbage collector.
func TestManyEnd(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	b := table(t, high)
	for range 3 * maxLinks {
		a := table(t, low)
		toB, _ := meet(t, a, b)
		send(t, toB, "gone")
		_ = a.Close()
		if !soon.Until(func() bool { return b.Link(low) == nil }) {
			t.Fatal("the link has outlived a neighbor")
		}
		b.Take(make([]Train, 2))
		if b.Take(make([]Train, 2)); b.Linked() {
			t.Fatal("the link is still known when all was taken")
		}
	}
	if n := b.mapped.Load(); n == 0 || n > maxMapped {
		t.Errorf("b has %d mappings, want 1 to %d", n, maxMapped)
	}
}

// TestDescriptors: a link keeps no descriptor of its memory, which would keep that allocated.
func TestDescriptors(t *testing.T) {
	linked(t)
	if !soon.Until(func() bool { return descriptors(t, "nvmeof rings") == 0 }) {
		t.Errorf("%d descriptors are left", descriptors(t, "nvmeof rings"))
	}
}

// descriptors counts those of this process that refer to a memory file of that name.
func descriptors(t *testing.T, name string) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(to, "memfd:"+name) {
			n++
		}
	}
	return n
}
