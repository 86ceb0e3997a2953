package tests

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/tests/crashload"
)

// killsEnv is how often TestKillData kills nvmetgt; `make kill` does it 200 times.
const killsEnv = "NVMEOF_KILLS"

// TestKillData kills nvmetgt at random moments while a host writes blocks that identify their write, and checks after
// each restart: nothing acknowledged may be lost, and no block torn. The kernel outlives the program, so that also
// holds for writes that weren't flushed.
func TestKillData(t *testing.T) {
	kills := int(fuzzing.Number(t, killsEnv, 6))
	seed := verifySeed(t)
	ways := []struct {
		io, transport string
		block         int
	}{
		{"auto", "tcp", 4096}, {"direct", "tcp", 512}, {"buffered", "tcp", 4096}, {"auto", "rdma", 512}, {"auto", "tcp", 512}, {"buffered", "rdma", 4096},
	}
	for i, w := range ways {
		share := (kills + len(ways) - 1 - i) / len(ways)
		t.Run(fmt.Sprintf("%s/%s/%d", w.io, w.transport, w.block), func(t *testing.T) {
			needIO(t, w.io)
			noLeaks(t)
			k := &killing{
				transport: w.transport, rnd: rand.New(rand.NewPCG(seed, uint64(i))),
				args: []string{"--volume", filepath.Join(t.TempDir(), "disk.img"), "--size", "16MiB",
					"--io", w.io, "--block-size", strconv.Itoa(w.block)},
				load: crashload.New(killBlocks, w.block),
			}
			for range share {
				k.round(t)
			}
			k.check(t, startTarget(t, k.args...)).stop(t)
			t.Logf("%d kills, %d writes acknowledged, %d cut", share, k.load.Acknowledged.Load(), k.load.Cut.Load())
		})
	}
}

const killBlocks = 512

// killing is a volume that outlives its targets.
type killing struct {
	transport string
	args      []string
	rnd       *rand.Rand
	load      *crashload.Load
}

// round starts a target, checks what the previous one left, and kills it under load.
func (k *killing) round(t *testing.T) {
	p := k.check(t, startTarget(t, k.args...))
	h := k.dial(t, p)
	ns := h.namespace(t, 1)
	// On a busy machine keep alive may come too late: that moment is as good as any.
	for _, err := range k.load.Run(t.Context(), ns, k.rnd, 1+k.rnd.Uint64N(300), p.kill) {
		if !errors.Is(err, host.ErrLost) {
			t.Errorf("a writer ended with %v", err)
		}
	}
	if err := h.Close(); !errors.Is(err, host.ErrLost) {
		t.Errorf("closing a lost controller says %v", err)
	}
}

func (k *killing) dial(t *testing.T, p *targetProgram) *hostSide {
	t.Helper()
	return dialHost(t, p.remote(), k.transport, func(c *host.Config) { c.KATO = 5 * time.Second })
}

// check reads all blocks.
func (k *killing) check(t *testing.T, p *targetProgram) *targetProgram {
	t.Helper()
	h := k.dial(t, p)
	defer h.close(t)
	ns := h.namespace(t, 1)
	if err := k.load.Check(t.Context(), ns); err != nil {
		t.Errorf("after a kill: %v", err)
	}
	return p
}
