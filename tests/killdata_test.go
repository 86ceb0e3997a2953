package tests

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/crash"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// killsEnv is how often TestKillData kills nvmetgt; `make kill` does it 200 times.
const killsEnv = "NVMEOF_KILLS"

// TestKillData kills nvmetgt at random moments while a host writes blocks that name their write,
// and looks after each restart: nothing that was acknowledged may be lost, and no block torn.
// The kernel outlives the program, so that holds for writes that weren't flushed, too.
func TestKillData(t *testing.T) {
	kills := 6
	if s := os.Getenv(killsEnv); s != "" {
		var err error
		if kills, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
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
			noLeaks(t)
			k := &killing{
				transport: w.transport, block: w.block, rnd: rand.New(rand.NewPCG(seed, uint64(i))),
				args: []string{"--volume", filepath.Join(t.TempDir(), "disk.img"), "--size", "16MiB",
					"--io", w.io, "--block-size", strconv.Itoa(w.block)},
				ledger: crash.NewLedger(killBlocks),
			}
			for range share {
				k.round(t)
			}
			k.check(t, startTarget(t, k.args...)).stop(t)
			t.Logf("%d kills, %d writes acknowledged, %d cut", share, k.acknowledged.Load(), k.cut.Load())
		})
	}
}

const (
	killBlocks  = 512
	killWriters = 4
)

// killing is a volume that outlives its targets.
type killing struct {
	transport string
	block     int
	args      []string
	rnd       *rand.Rand
	ledger    *crash.Ledger
	seq       atomic.Uint64

	acknowledged, cut atomic.Uint64
}

// round starts a target, checks what the one before left, and kills it under load.
func (k *killing) round(t *testing.T) {
	p := k.check(t, startTarget(t, k.args...))
	h := k.dial(t, p)
	ns, err := h.Namespace(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	moment := k.acknowledged.Load() + 1 + k.rnd.Uint64N(300)
	reached := make(chan struct{})
	var once sync.Once
	var writers sync.WaitGroup
	for i := range killWriters {
		rnd := rand.New(rand.NewPCG(k.rnd.Uint64(), 0))
		writers.Go(func() {
			err := k.write(t, ns, rnd, uint64(i), func() {
				if k.acknowledged.Load() >= moment {
					once.Do(func() { close(reached) })
				}
			})
			if !errors.Is(err, host.ErrLost) {
				t.Errorf("a writer ended with %v", err)
			}
			once.Do(func() { close(reached) }) // on a busy machine keep alive may come too late: as good a moment
		})
	}
	<-reached
	p.kill()
	writers.Wait()
	if err := h.closeAll(); !errors.Is(err, host.ErrLost) {
		t.Errorf("closing a lost controller says %v", err)
	}
}

func (k *killing) dial(t *testing.T, p *targetProgram) *hostSide {
	t.Helper()
	return dialHost(t, p.remote(), k.transport, func(c *host.Config) { c.KATO = 5 * time.Second })
}

// write writes blocks of a writer's own until that fails.
func (k *killing) write(t *testing.T, ns *host.Namespace, rnd *rand.Rand, writer uint64, acknowledged func()) error {
	const own = killBlocks / killWriters
	buf := make([]byte, 16*k.block)
	for {
		n := 1 + rnd.Uint64N(uint64(len(buf)/k.block))
		first := writer*own + rnd.Uint64N(own-n+1)
		seq := k.seq.Add(1)
		data := buf[:int(n)*k.block]
		for i := range n {
			crash.Stamp(data[int(i)*k.block:][:k.block], first+i, seq)
			k.ledger.Begin(first+i, seq)
		}
		write := ns.WriteAt
		if rnd.IntN(3) == 0 {
			write = ns.WriteAtFUA
		}
		_, err := write(t.Context(), data, int64(first)*int64(k.block))
		for i := range n {
			if err != nil {
				k.ledger.Failed(first + i)
			} else {
				k.ledger.Done(first+i, true)
			}
		}
		if err == nil && rnd.IntN(8) == 0 {
			err = ns.Flush(t.Context())
		}
		if err != nil {
			k.cut.Add(1)
			return err
		}
		k.acknowledged.Add(1)
		acknowledged()
	}
}

// check reads all blocks, and takes what it finds as what is there.
func (k *killing) check(t *testing.T, p *targetProgram) *targetProgram {
	t.Helper()
	h := k.dial(t, p)
	defer h.close(t)
	ns, err := h.Namespace(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	image := make([]byte, killBlocks*k.block)
	if _, err := ns.ReadAt(t.Context(), image, 0); err != nil {
		t.Fatal(err)
	}
	floor := k.ledger.Floor()
	for b := range uint64(killBlocks) {
		content := image[int(b)*k.block:][:k.block]
		if err := k.ledger.Check(floor, b, content); err != nil {
			t.Errorf("after a kill: %v", err)
		}
		if seq, err := crash.ReadStamp(content, b); err == nil {
			k.ledger.Settle(b, seq)
		}
	}
	return p
}
