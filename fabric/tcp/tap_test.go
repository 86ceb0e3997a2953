package tcp

import (
	"bytes"
	"net/netip"
	"sync"
	"testing"
)

// taps keeps the bytes of every connection, by the host's address.
type taps struct {
	mu  sync.Mutex
	all map[netip.AddrPort]*tapped
}

// tapped is one connection as one side saw it.
type tapped struct {
	sent, received bytes.Buffer // belong to different goroutines
	closed         bool
}

func (s *taps) add(hostAddr netip.AddrPort) Tap {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := new(tapped)
	s.all[hostAddr] = t
	return t
}

// Sent implements Tap.
func (t *tapped) Sent(parts [][]byte) {
	for _, p := range parts {
		t.sent.Write(p)
	}
}

// Received implements Tap.
func (t *tapped) Received(parts [][]byte, n int) {
	for _, p := range parts {
		p = p[:min(n, len(p))]
		t.received.Write(p)
		n -= len(p)
	}
}

// Close implements Tap.
func (t *tapped) Close() { t.closed = true }

// TestTap checks that the bytes that one side's Tap sees sent are those that the other's sees received.
func TestTap(t *testing.T) {
	host, target := taps{all: map[netip.AddrPort]*tapped{}}, taps{all: map[netip.AddrPort]*tapped{}}
	t.Run("transfer", func(t *testing.T) { // ends when both sides are closed
		tt := newTestTarget(t, TargetConfig{Tap: func(_, remote netip.AddrPort) Tap { return target.add(remote) }})
		p := newPair(t, tt.Addr(), clientOptions{host: HostConfig{
			DataDigest: true, Tap: func(local, _ netip.AddrPort) Tap { return host.add(local) },
		}})
		transferAll(t, p)
	})
	if len(host.all) != 2 || len(target.all) != 2 {
		t.Fatalf("%d connections at the host, %d at the target, want 2", len(host.all), len(target.all))
	}
	for addr, h := range host.all {
		c := target.all[addr]
		if c == nil {
			t.Fatalf("the target has not seen %v", addr)
		}
		if !h.closed || !c.closed {
			t.Errorf("%v: host closed %v, target closed %v", addr, h.closed, c.closed)
		}
		if h.sent.Len() == 0 || !bytes.Equal(h.sent.Bytes(), c.received.Bytes()) {
			t.Errorf("%v: host sent %d bytes, target received %d, or others", addr, h.sent.Len(), c.received.Len())
		}
		if c.sent.Len() == 0 || !bytes.Equal(c.sent.Bytes(), h.received.Bytes()) {
			t.Errorf("%v: target sent %d bytes, host received %d, or others", addr, c.sent.Len(), h.received.Len())
		}
	}
}
