package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/config"
)

// sized is a volume whose size is watched.
type sized struct {
	blockdev.Volume
	asked atomic.Int32
	hangs chan struct{} // closed when it answers; nil for at once
	fails error
}

func (v *sized) OnResize(func(int64)) (stop func()) { return func() {} }

func (v *sized) Refresh() error {
	v.asked.Add(1)
	if v.hangs != nil {
		<-v.hangs
	}
	return v.fails
}

// TestProblemsAreTold: what is wrong with a volume is logged once, and so is what goes wrong with it while that lasts.
func TestProblemsAreTold(t *testing.T) {
	var log bytes.Buffer
	s := &server{log: newLogger(config.Log{}, &log)}
	null, err := blockdev.NewNull(blockdev.Options{Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	v, known := &sized{Volume: null}, ""
	small, both := errors.New("too small"), errors.New("too small; no name")
	info := null.Info()
	for _, x := range []struct {
		fails error
		told  string // what the log says; empty for nothing
	}{
		{nil, ""}, {small, "too small"}, {small, ""}, {both, "no name"}, {both, ""},
		{nil, ""}, {small, "too small"}, {info.Closed("refresh"), ""},
		{info.Failed("refresh", blockdev.ErrGone, unix.ESTALE), "stale"}, // its server has another file system there
	} {
		log.Reset()
		v.fails = x.fails
		known = s.refresh(v, known)
		if said := log.String(); (said != "") != (x.told != "") || !strings.Contains(said, x.told) {
			t.Errorf("%v: the log says %q, want %q", x.fails, said, x.told)
		}
	}
}

// TestSizeHangs: a volume whose file system doesn't say how large it is keeps no other volume's size from being watched.
func TestSizeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		volume := func(hangs chan struct{}) *sized {
			v, err := blockdev.NewNull(blockdev.Options{Size: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			return &sized{Volume: v, hangs: hangs}
		}
		hanging := volume(make(chan struct{}))
		s := &server{log: slog.New(slog.DiscardHandler), exports: map[exportKey]*export{{nsid: 1}: {volume: hanging}}}
		var others []*sized
		for nsid := range uint32(8) {
			v := volume(nil)
			others = append(others, v)
			s.exports[exportKey{nsid: 2 + nsid}] = &export{volume: v}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go s.watchSizes(ctx)
		const rounds = 10
		time.Sleep(rounds*sizeInterval + sizeInterval/2)
		synctest.Wait()
		for i, v := range others {
			if n := v.asked.Load(); n != rounds {
				t.Errorf("volume %d was asked %d times in %d intervals", i, n, rounds)
			}
		}
		if n := hanging.asked.Load(); n != 1 {
			t.Errorf("the volume that doesn't answer was asked %d times", n)
		}
		close(hanging.hangs)
		cancel()
	})
}
