package target

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// The time of sampled commands is counted in the stage where it passed: with the volume, on the way from the host and
// to it.
func TestStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTestVolume(1<<20, 512)
		tg := newTarget(t, v)
		s := connect(t, tg, testNQN)
		for n := uint64(2); !sampled(n); n++ { // Connect was the first
			s.io.must(readCommand(0), make([]byte, 4096))
		}
		v.setHold(true)
		s.io.mu.Lock()
		s.io.holdSent = true
		s.io.mu.Unlock()
		r := s.io.start(readCommand(0), make([]byte, 4096))
		<-v.arrived
		time.Sleep(3 * time.Second)
		v.release()
		r.wait()
		time.Sleep(2 * time.Second)
		s.io.release()
		synctest.Wait()

		snap := tg.Snapshot()
		for _, got := range []StageStats{
			snap.Subsystems[0].Namespaces[0].IO.Stages,
			snap.Subsystems[0].Controllers[0].Queues[1].IO.Stages,
			snap.Transports[0].IO.Stages,
		} {
			want := StageStats{Sampled: 1}
			want.Nanos[StageVolume], want.Nanos[StageSend] = 3e9, 2e9
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		s.close()
	})
}

// The data of a write comes from the host, perhaps after a wait for memory for it.
func TestStagesOfWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tg := newTarget(t, newTestVolume(1<<20, 512))
		s := connect(t, tg, testNQN)
		s.io.pullLate, s.io.allocFails = true, 1
		for n := uint64(2); n < 1000; n++ {
			s.io.must(command(func(c *nvme.Command) { c.SetIO(nvme.OpWrite, 1, 0, 8, 0) }), make([]byte, 4096))
		}
		if got := tg.Snapshot().Subsystems[0].Namespaces[0].IO.Stages.Sampled; got < 10 || got > 20 {
			t.Errorf("%d commands of 1000 were sampled", got)
		}
		s.close()
	})
}

// Of commands that alternate, both kinds are sampled equally.
func TestSampled(t *testing.T) {
	var of [2]int
	for n := range uint64(64_000) {
		if sampled(n) {
			of[n%2]++
		}
	}
	for _, k := range of {
		if k < 450 || k > 550 {
			t.Errorf("sampled: %v of 64000, want 500 even and odd ones", of)
		}
	}
}
