package persist

import (
	"errors"
	"fmt"

	"github.com/nvme-anywhere/nvmeof/blockdev/volumetest"
	"github.com/nvme-anywhere/nvmeof/internal/crash"
)

// killEvery is how many points of a history there are, on average, for each at which the program is killed.
const killEvery = 16

// killed lets the program be killed now. The next one finds every acknowledged write, durable or not; until it has
// made them so, the power may fail at each point.
func (h *history) killed(floor crash.Floor) error {
	acknowledged := h.ledger.BeginFlush()
	heir := h.mem.fork(h.heir)
	var failed error
	heir.point = func() {
		if failed == nil {
			failed = h.recovered(floor, heir.crash(h.rnd))
		}
	}
	if err := h.takeOver(heir, acknowledged); err != nil {
		return fmt.Errorf("taken over: %w", err)
	}
	if failed != nil {
		return fmt.Errorf("power failure while it is taken over: %w", failed)
	}
	if err := h.recovered(acknowledged, heir.crash(h.rnd)); err != nil {
		return fmt.Errorf("power failure after it was taken over: %w", err)
	}
	return nil
}

// takeOver opens the volume of a program that was killed, and checks every block.
func (h *history) takeOver(mem *simMemory, floor crash.Floor) error {
	m := &mapping{mem: mem.mem, fs: "simulation", dax: h.kind.dax}
	s, errs := readSuper(m)
	if s == nil {
		return errors.Join(errs[:]...)
	}
	lines := mem.flusher()
	if !h.kind.dax {
		lines = nil
	}
	v, err := newAtomic(m, s, "taken over", false, lines)
	if err != nil {
		return err
	}
	defer v.unmapOwn()
	v.sync = mem.sync
	if v.kind == onSync { // chooseTables would ask the kernel which working maps it has
		if err := v.replay(); err != nil {
			return err
		}
	}
	if err := v.scan(); err != nil {
		return err
	}
	all := make([]byte, simBlocks*simBlock)
	if err := volumetest.NewClient(v).Read(all, 0); err != nil {
		return err
	}
	return h.ledger.CheckAll(floor, all)
}
