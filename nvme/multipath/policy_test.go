package multipath

import (
	"testing"
	"testing/synctest"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// TestRoundRobin: both paths take the same share.
func TestRoundRobin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect()
		defer r.close(s)
		for i := range 20 {
			mustWrite(t, n, byte(i), 0)
			mustRead(t, n, byte(i), 0)
		}
		for _, p := range s.Paths() {
			if got := p.Counters.Ended.Load(); got != 20 || p.State != Live || p.Access[0].State != nvme.ANAOptimized {
				t.Errorf("%s: %d requests, %+v", p.Name(), got, p)
			}
		}
	})
}

// TestQueueDepth: unless another policy is chosen, a path whose requests don't end gets no more of them than the others
// have outstanding.
func TestQueueDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		s, n := r.connect(func(c *Config) { c.Policy = Config{}.Policy })
		defer r.close(s)
		r.links[0].set(func(l *link) { l.hold = func(*nvme.Command) bool { return true } })
		held := &host.Request{Data: make([]byte, n.BlockSize()), Done: func(*host.Request) {}}
		held.Cmd.SetIO(nvme.OpRead, n.ID, 0, 1, 0)
		for s.Paths()[0].UnderWay == 0 {
			n.Lane(0).SubmitOne(held)
			synctest.Wait()
		}
		for range 20 {
			mustRead(t, n, 0, 0)
		}
		if got := s.Paths()[1].Counters.Ended.Load(); got < 20 {
			t.Errorf("%d requests took the idle path", got)
		}
	})
}

// TestUnderWay: however many requests begin and end while they are counted, never fewer than none are under way.
func TestUnderWay(t *testing.T) {
	var c PathCounters
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 1 << 20 {
			c.Begun.Add(1)
			c.Ended.Add(1)
		}
	}()
	for {
		if n := c.underWay(); n < 0 {
			t.Errorf("%d requests are under way", n)
			break
		}
		select {
		case <-over:
			return
		default:
		}
	}
	<-over
}

func TestParsePolicy(t *testing.T) {
	for _, p := range []Policy{RoundRobin, QueueDepth} {
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	for _, s := range []string{"", "numa", "fastest"} {
		if _, err := ParsePolicy(s); err == nil {
			t.Errorf("%q is a policy", s)
		}
	}
}
