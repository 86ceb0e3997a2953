package tcp

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/nvme-anywhere/nvmeof/internal/soon"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestCore runs the host core against the engine: connect, several queues, I/O, an orderly end.
func TestCore(t *testing.T) {
	for _, cfg := range []HostConfig{{}, {HeaderDigest: true, DataDigest: true}} {
		for _, noFlow := range []bool{false, true} {
			tt := newTestTarget(t, TargetConfig{})
			tr, err := NewTransport(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			c, err := host.Connect(ctx, host.Config{Transport: tr, Remote: tt.Addr(), SubNQN: testNQN,
				Queues: 3, DisableSQFlow: noFlow, KATO: patience})
			if err != nil {
				t.Fatal(err)
			}
			if got := len(c.Queues()); got != 3 {
				t.Errorf("%d queues", got)
			}
			n, err := c.Namespace(ctx, 1)
			if err != nil {
				t.Fatal(err)
			}
			want, got := randomBytes(3, 3<<20), make([]byte, 3<<20)
			if _, err := n.WriteAt(ctx, want, 4096); err != nil {
				t.Fatal(err)
			}
			if err := n.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := n.ReadAt(ctx, got, 4096); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%v, or other data than was written", err)
			}
			if s := tr.Counters().Successes.Load(); (s > 0) != noFlow {
				t.Errorf("%d SUCCESS flags, SQ flow control disabled: %v", s, noFlow)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCoreLost ends the listener below a connected controller.
func TestCoreLost(t *testing.T) {
	tt := newTestTarget(t, TargetConfig{})
	c := connectedHost(t, tt, 2)
	if err := tt.Close(); err != nil {
		t.Error(err)
	}
	if _, ok := soon.Receive(c.Done()); !ok {
		t.Fatal("the host doesn't notice")
	}
	if err := c.Err(); !errors.Is(err, ErrPeerClosed) {
		t.Errorf("the connection ended with %v, want %v", err, ErrPeerClosed)
	}
	_ = c.Close() // reports the same loss
}

// connectedHost returns a controller with a transport of its own, which is closed with the test.
func connectedHost(t *testing.T, tt *testTarget, queues int) *host.Controller {
	t.Helper()
	tr, err := NewTransport(HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := host.Connect(t.Context(), host.Config{Transport: tr, Remote: tt.Addr(), SubNQN: testNQN, Queues: queues})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
