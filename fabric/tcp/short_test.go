package tcp

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
	"github.com/nvme-anywhere/nvmeof/internal/mem"
	"github.com/nvme-anywhere/nvmeof/internal/soon"
)

// TestSystemShortOfMemory: a command for whose data the system has no memory waits, though no other command holds any
// that it could give back. The log says so, and the command is answered once the system has memory again.
func TestSystemShortOfMemory(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	short := limitMemory(t, tt)
	p := rawHost(t, tt)
	p.initialize(pdu.ICReq{})
	p.connect()
	p.enable()
	short.Store(true)
	p.send(p.capsule(identify(2), nil))
	err, said := soon.Receive(tt.errs)
	time.Sleep(1500 * time.Millisecond) // memory that is freed is saved for the command for a second
	short.Store(false)
	if !said || !errors.Is(err, unix.ENOMEM) {
		t.Errorf("the log says %v", err)
	}
	p.expect(pdu.TypeC2HData)
	if cqe := p.response(); !cqe.Status().OK() {
		t.Errorf("status %v", cqe.Status())
	}
}

// limitMemory gives a target, which has no connections yet, an arena that gets no memory while short is set.
func limitMemory(t *testing.T, tt *testTarget) (short *atomic.Bool) {
	t.Helper()
	short = new(atomic.Bool)
	cfg := tt.memoryConfig()
	cfg.OnGrow = func(i int, chunk []byte) error {
		if short.Load() {
			return unix.ENOMEM
		}
		return tt.grown(i, chunk)
	}
	arena, err := mem.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.memory.Close()
	tt.memory, tt.pool = arena, mem.NewPool(arena, tt.cfg.PeerMemory, granted)
	return short
}
