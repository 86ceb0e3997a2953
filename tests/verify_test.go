package tests

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// Environment of TestModel.
const (
	// verifyTimeEnv is how long each combination of transport, volume and block size runs.
	verifyTimeEnv = "NVMEOF_VERIFY_TIME"
	// verifySeedEnv chooses the commands; a failure prints the seed that it had.
	verifySeedEnv = "NVMEOF_VERIFY_SEED"

	verifyTime = 1200 * time.Millisecond
	verifySize = 64 << 20
)

// volumeKind is a kind of volume as nvmetgt serves it.
type volumeKind struct {
	name    string
	spec    func(dir string) string
	args    []string
	forgets bool // reads as zeroes
	keeps   bool // keeps its content from one program to the next
}

var volumeKinds = []volumeKind{
	{name: "mem", spec: func(string) string { return "mem:64MiB" }},
	{name: "null", spec: func(string) string { return "null:64MiB" }, forgets: true},
	{name: "file", spec: func(d string) string { return filepath.Join(d, "direct.img") },
		args: []string{"--size", "64MiB"}, keeps: true},
	{name: "file-buffered", spec: func(d string) string { return filepath.Join(d, "buffered.img") },
		args: []string{"--size", "64MiB", "--io", "buffered"}, keeps: true},
	{name: "pmem", spec: func(d string) string { return "pmem:" + filepath.Join(d, "pmem.img") },
		args: []string{"--size", "64MiB"}, keeps: true},
	{name: "pmem in place", spec: func(d string) string { return "pmem:" + filepath.Join(d, "inplace.img") + ",mode=inplace" },
		args: []string{"--size", "64MiB"}, keeps: true},
}

// TestModel runs random commands of every kind, length and place on every kind of volume, through each transport, and
// compares every result with a model in memory.
func TestModel(t *testing.T) {
	noLeaks(t)
	d, seed := verifyFor(t), verifySeed(t)
	for _, k := range volumeKinds {
		for _, bs := range []int{512, 4096} {
			t.Run(fmt.Sprintf("%s/%d", k.name, bs), func(t *testing.T) { verifyVolume(t, k, bs, d, seed) })
		}
	}
}

func verifyFor(t *testing.T) time.Duration {
	s := os.Getenv(verifyTimeEnv)
	if s == "" {
		return verifyTime
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		t.Fatalf("%s=%q: want a time, as 60s", verifyTimeEnv, s)
	}
	return d
}

func verifySeed(t *testing.T) uint64 {
	seed := fuzzing.Number(t, verifySeedEnv, rand.Uint64())
	t.Logf("%s=%#x", verifySeedEnv, seed)
	return seed
}

// verifyVolume uses one volume over one transport after the other. What the first wrote the next must find; and so must
// a program that is started afterwards, if the volume keeps its content.
func verifyVolume(t *testing.T, k volumeKind, bs int, d time.Duration, seed uint64) {
	args := append([]string{"--local-memory", "--volume", k.spec(t.TempDir()), "--block-size", strconv.Itoa(bs)}, k.args...)
	p := startTarget(t, args...)
	volume, _, _ := strings.Cut(p.stdout.String(), "\n")
	t.Log(volume)
	m := newModel(verifySize, bs, k.forgets)
	var stamp atomic.Uint64
	for i, path := range localPaths {
		t.Run(path, func(t *testing.T) {
			h := dialHost(t, p.remote(), path, verifyConfig)
			w := newWorkload(t, h, 1, m, &stamp, seed+uint64(i))
			if err := w.runFor(h, d); err != nil {
				t.Fatalf("%s=%#x: %v\n%s", verifySeedEnv, seed, err, w.summary())
			}
			t.Log(w.summary())
			verifyLong(t, w)
			verifyAll(t, w.ns, m)
			h.close(t)
		})
	}
	p.stop(t)
	if k.keeps && !t.Failed() {
		p = startTarget(t, args...)
		h := dialHost(t, p.remote(), "rdma", verifyConfig)
		ns := h.namespace(t, 1)
		verifyAll(t, ns, m)
		h.close(t)
		p.stop(t)
	}
}

func verifyConfig(c *host.Config) {
	c.Queues, c.QueueSize = loadQueues, loadDepth+1
	c.IOTimeout = 10 * time.Second
	c.KATO = 2 * time.Minute // one of the two programs may stand still longer than the other
}

// verifyLong writes zeroes to, and discards, more than a volume does at once.
func verifyLong(t *testing.T, w *workload) {
	t.Helper()
	m, bs := w.model, int64(w.model.blockSize)
	long := span{3, (9<<20)/int(bs) + 1}
	if err := w.ns.WriteZeroes(t.Context(), int64(long.first)*bs, int64(long.blocks)*bs, true); err != nil {
		t.Fatal(err)
	}
	m.set([]span{long}, stampZero)
	long.first += long.blocks + 5
	if err := w.ns.Discard(t.Context(), int64(long.first)*bs, int64(long.blocks)*bs); err != nil {
		t.Fatal(err)
	}
	m.set([]span{long}, stampUnknown)
	if w.zeroAfter {
		m.set([]span{long}, stampZero)
	}
}

// verifyAll reads the whole namespace and compares it with the model.
func verifyAll(t *testing.T, ns *host.Namespace, m *model) {
	t.Helper()
	c := ns.Controller()
	buf, err := c.Alloc(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free(buf)
	for off := int64(0); off < ns.Size(); off += int64(len(buf)) {
		poison(buf, m.blockSize)
		if _, err := ns.ReadAt(t.Context(), buf, off); err != nil {
			t.Fatal(err)
		}
		if err := m.check(buf, span{int(off) / m.blockSize, len(buf) / m.blockSize}); err != nil {
			t.Fatalf("reading it all: %v", err)
		}
	}
	// The end of the namespace is where it says.
	var r host.Request
	r.Data = buf[:m.blockSize]
	r.Cmd.SetIO(nvme.OpRead, ns.ID, ns.Blocks(), 1, 0)
	if err := c.Queues()[0].Do(t.Context(), &r); !errors.Is(err, nvme.StatusLBAOutOfRange) {
		t.Errorf("a read beyond the end ended with %v", err)
	}
}
