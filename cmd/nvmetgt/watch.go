package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/blockdev/wrap"
)

// sizeInterval is how often the sizes of volumes are queried.
const sizeInterval = time.Second

// watchVolumes watches the volumes: it detects new sizes, and handles the signals for wrappers. That of freezing is
// handled until everything else is closed, since that may wait for a frozen volume; closing ends the rest earlier.
func (s *server) watchVolumes() (closing context.CancelFunc) {
	closed, end := context.WithCancel(context.Background())
	open, closing := context.WithCancel(closed)
	freeze, scrub := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(freeze, unix.SIGUSR1)
	signal.Notify(scrub, unix.SIGUSR2)
	var running sync.WaitGroup
	running.Go(func() { s.watchSizes(open) })
	running.Go(func() { s.watchSignal(closed, freeze, s.toggle) })
	running.Go(func() { s.watchSignal(open, scrub, func(v blockdev.Volume) { s.scrub(open, v) }) })
	s.onClose(func() error {
		signal.Stop(freeze)
		signal.Stop(scrub)
		end()
		running.Wait()
		return nil
	})
	return closing
}

// volumes returns the exported volumes, and those that were taken away and are not closed yet. Each may be closed
// at any time.
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

// sizeWatch is what is known about a volume whose size is watched.
type sizeWatch struct {
	asked   atomic.Bool // a goroutine queries it, and owns problem meanwhile
	problem string      // what the last query found; empty for nothing
}

// watchSizes queries each volume whose size can change, which costs a system call. The call may hang, with the file
// system: then no other volume waits for it, and when the server closes only that volume does.
func (s *server) watchSizes(ctx context.Context) {
	watched := map[blockdev.Resizer]*sizeWatch{}
	tick := time.NewTicker(sizeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before := watched
		watched = map[blockdev.Resizer]*sizeWatch{}
		for _, v := range s.volumes() {
			r, ok := v.(blockdev.Resizer)
			if !ok {
				continue
			}
			w := cmp.Or(before[r], new(sizeWatch))
			watched[r] = w
			if w.asked.CompareAndSwap(false, true) {
				go func() {
					w.problem = s.refresh(r, w.problem)
					w.asked.Store(false)
				}()
			}
		}
	}
}

// refresh makes a volume check its size and its file, and returns what is wrong with them; empty for nothing. It logs
// that unless it is what was known.
func (s *server) refresh(v blockdev.Resizer, known string) (problem string) {
	before := v.Info().Size
	if err := v.Refresh(); err != nil && !errors.Is(err, fs.ErrClosed) {
		if problem = err.Error(); problem != known {
			s.log.Error("a volume isn't as it should be", "err", err)
		}
	}
	switch now := v.Info(); {
	case now.Size > before:
		s.log.Info("a volume has grown", "volume", now.Name(), "before", before, "now", now.Size)
	case now.Size < before:
		s.log.Warn("a volume has shrunk: what hosts had beyond its end is lost, and they can't use it there any more",
			"volume", now.Name(), "before", before, "now", now.Size)
	}
	return problem
}

// watchSignal calls do for each volume when a signal comes. Each signal has its own goroutine: a scrub may be
// waiting for a volume to be thawed.
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

// toggle handles SIGUSR1: it freezes or thaws the layers of a volume that support it.
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

// scrub handles SIGUSR2: it checks all blocks of a volume with checksums.
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
