package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
)

// sizeInterval is how often volumes are asked for their size.
const sizeInterval = time.Second

// watchVolumes looks after the volumes until the server closes: it notices new sizes, and
// obeys the signals for wrappers.
func (s *server) watchVolumes() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.watchSizes(ctx) })
	// From here on, lest one that comes soon ends the program.
	freeze, scrub := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(freeze, unix.SIGUSR1)
	signal.Notify(scrub, unix.SIGUSR2)
	running.Go(func() { s.watchSignal(ctx, freeze, s.toggle) })
	running.Go(func() { s.watchSignal(ctx, scrub, func(v blockdev.Volume) { s.scrub(ctx, v) }) })
	s.onClose(func() error {
		signal.Stop(freeze)
		signal.Stop(scrub)
		cancel()
		running.Wait()
		return nil
	})
}

// volumes are those exported now, and those that are waited for since they aren't. Each may be closed at any time.
func (s *server) volumes() []blockdev.Volume {
	s.now.Lock()
	defer s.now.Unlock()
	all := make([]blockdev.Volume, 0, len(s.exports))
	for _, e := range s.exports {
		all = append(all, e.volume)
	}
	for e := range s.going {
		all = append(all, e.volume)
	}
	return all
}

// watchSizes asks each volume whose size can change. Asking costs a system call.
func (s *server) watchSizes(ctx context.Context) {
	failed := map[blockdev.Resizer]bool{}
	tick := time.NewTicker(sizeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before := failed
		failed = map[blockdev.Resizer]bool{}
		for _, v := range s.volumes() {
			if r, ok := v.(blockdev.Resizer); ok {
				failed[r] = !s.refresh(r, before[r])
			}
		}
	}
}

// refresh has a volume look at its size, and says whether it could.
func (s *server) refresh(v blockdev.Resizer, failed bool) bool {
	before := v.Info().Size
	err := v.Refresh()
	if err != nil && !failed && !errors.Is(err, blockdev.ErrGone) {
		s.log.Error("the size of a volume isn't as it should be", "err", err)
	}
	switch now := v.Info(); {
	case now.Size > before:
		s.log.Info("a volume has grown", "volume", now.Name(), "before", before, "now", now.Size)
	case now.Size < before:
		s.log.Warn("a volume has shrunk: what hosts had beyond its end is lost, and they can't use it there any more",
			"volume", now.Name(), "before", before, "now", now.Size)
	}
	return err == nil
}

// watchSignal does something with each volume when a signal comes. Each signal is watched by itself: what a scrub waits
// for may be a volume to thaw.
func (s *server) watchSignal(ctx context.Context, signals <-chan os.Signal, do func(blockdev.Volume)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			for _, v := range s.volumes() {
				do(v)
			}
		}
	}
}

// toggle is for signal USR1: it freezes or thaws the layers of a volume that can be.
func (s *server) toggle(v blockdev.Volume) {
	for _, f := range wrap.Find[*wrap.Freezer](v) {
		if f.Frozen() {
			f.Thaw()
		} else {
			f.Freeze()
		}
		i := v.Info()
		s.log.Warn("signal USR1", "volume", i.Name(), "frozen", f.Frozen())
	}
}

// scrub is for signal USR2: it compares all blocks of a volume that has checksums.
func (s *server) scrub(ctx context.Context, v blockdev.Volume) {
	for _, k := range wrap.Find[*wrap.Checker](v) {
		found, err := k.Scrub(ctx)
		i := v.Info()
		if err != nil && !errors.Is(err, context.Canceled) {
			s.log.Error("scrub found errors", "volume", i.Name(), "blocks", found.Blocks, "bad", found.Bad,
				"unreadable", found.Errors, "first", err)
		} else {
			s.log.Info("scrub", "volume", i.Name(), "blocks", found.Blocks, "bad", found.Bad)
		}
	}
}
