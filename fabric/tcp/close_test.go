package tcp

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// TestTransportClosed: after Close no queue is dialled and no memory handed out.
func TestTransportClosed(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	tr, err := NewTransport(HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Alloc(4096); !errors.Is(err, ErrClosed) {
		t.Errorf("Alloc: %v", err)
	}
	c, err := host.Connect(t.Context(), host.Config{Transport: tr, Remote: tt.Addr(), SubNQN: testNQN})
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, ErrClosed) {
		t.Errorf("Connect: %v", err)
	}
}

// TestTransportClosedMeanwhile: Close waits for a host that is connecting meanwhile, which either gets its queues or is
// told that the transport is closed.
func TestTransportClosedMeanwhile(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	for range 40 {
		tr, err := NewTransport(HostConfig{})
		if err != nil {
			t.Fatal(err)
		}
		var connecting sync.WaitGroup
		connecting.Go(func() {
			c, err := host.Connect(context.Background(), host.Config{Transport: tr, Remote: tt.Addr(), SubNQN: testNQN, Queues: 4})
			if err == nil {
				err = c.Close()
			}
			if err != nil && !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
		time.Sleep(rand.N(5 * time.Millisecond))
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
		connecting.Wait()
	}
}

// TestListenerClosed: a host whose endpoint is closed is told so, and isn't counted as lost, though it closes its other
// connections when it finds the first one closed.
func TestListenerClosed(t *testing.T) {
	for range 20 {
		tt := newTestTarget(t, TargetConfig{})
		c := connectedHost(t, tt, 16)
		if err := tt.Close(); err != nil {
			t.Fatal(err)
		}
		if _, ok := soon.Receive(c.Done()); !ok {
			t.Fatal("the host has not noticed")
		}
		_ = c.Close()
		if n := tt.engine.Snapshot().Transports[0].LostHosts; n != 0 {
			t.Fatalf("%d hosts count as lost that the target has let go", n)
		}
	}
}

// TestListenForClosed: nothing listens for a target that is closed.
func TestListenForClosed(t *testing.T) {
	tg, err := target.New(target.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tg.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := ListenTarget(netip.MustParseAddrPort("127.0.0.1:0"), tg, TargetConfig{})
	if err == nil {
		_ = l.Close()
	}
	if !errors.Is(err, target.ErrClosed) {
		t.Error(err)
	}
}
