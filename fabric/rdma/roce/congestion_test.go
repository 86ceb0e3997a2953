package roce

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/race"
	"github.com/nvme-anywhere/nvmeof/internal/simnet"
)

// plotsEnv names the directory where TestCongestion plots what it measured; see make plots.
const plotsEnv = "NVMEOF_PLOTS"

// bottleneck is several flows through one port of a switch. Each flow is a device of its own, which writes to the
// device behind the port, or is read from by it.
type bottleneck struct {
	op    verbs.WROpcode
	flows int
	mark  bool // the port marks; otherwise it only drops

	every time.Duration // a flow starts that long after the one before
	until time.Duration
}

const (
	bottleneckRate  = 1250 << 20 // bytes a second
	bottleneckQueue = 512 << 10  // bytes
	bottleneckMark  = 100 << 10  // bytes waiting

	sampleEvery = 100 * time.Microsecond
)

// congestionRun is what was measured: queued bytes at each sample, and the bytes that each flow had moved by then.
type congestionRun struct {
	bottleneck
	queued []int
	moved  [][]int
	stats  simnet.Stats
	notes  uint64 // congestion notifications handled
}

func (b bottleneck) run(t *testing.T) *congestionRun {
	r := &congestionRun{bottleneck: b}
	synctest.Test(t, func(t *testing.T) { r.simulate(t) })
	return r
}

func (r *congestionRun) simulate(t *testing.T) {
	c := pairConfig{
		mtu: verbs.MTU4096, depth: 64, maxRd: 16, memory: 1 << 20, timeout: 17,
		endpoint: simnet.Config{MTU: 9000, RecvBuffer: 8 << 20, Coalesce: true},
	}.withDefaults()
	p := &pair{t: t, net: simnet.New(simnet.SeedFor(t)), cfg: c}
	// A little randomness, as in any network: without it, flows keep the phase in which they began.
	p.net.SetDefault(simnet.Link{Latency: 50 * time.Microsecond, Jitter: time.Microsecond})
	port := simnet.Port{Bandwidth: bottleneckRate, Queue: bottleneckQueue}
	if r.mark {
		port.MarkAbove = bottleneckMark
	}
	p.net.SetPort(addrB, port)
	hub := p.newSide(addrB)
	defer hub.dev.Close()
	stop := make(chan struct{})
	flows := make([]*flow, r.flows)
	for i := range flows {
		far := p.newSide(netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}))
		defer far.dev.Close()
		near := &side{t: t, dev: hub.dev, pd: hub.pd, mr: hub.mr, buf: hub.buf, wake: make(chan struct{}, 1)}
		var err error
		near.cq, err = near.dev.CreateCQ(4*c.depth, near.onCQ)
		check(t, err)
		near.cq.ReqNotify()
		near.qp = near.newQP(c)
		p.connect(far, near)
		flows[i] = &flow{from: far, to: near, op: r.op, done: make(chan struct{})}
		if r.op == verbs.WRRDMARead {
			flows[i].from, flows[i].to = near, far
		}
	}
	began := time.Now()
	for n := 0; time.Since(began) < r.until; n++ {
		for i, f := range flows {
			if !f.started && time.Since(began) >= time.Duration(i)*r.every {
				f.started = true
				go f.run(stop)
			}
		}
		time.Sleep(sampleEvery)
		synctest.Wait()
		r.queued = append(r.queued, p.net.Queued(addrB))
		row := make([]int, len(flows))
		for i, f := range flows {
			row[i] = int(f.moved.Load())
		}
		r.moved = append(r.moved, row)
	}
	close(stop)
	for _, f := range flows {
		<-f.done
		r.notes += f.from.dev.Counters()[CNPHandled]
	}
	r.stats = p.net.Stats()
}

// flow keeps requests outstanding.
type flow struct {
	from, to *side
	op       verbs.WROpcode
	started  bool
	moved    atomic.Int64 // bytes
	done     chan struct{}
}

func (f *flow) run(stop chan struct{}) {
	defer close(f.done)
	const size, depth = 16 << 10, 32
	post := func() {
		f.from.post(verbs.SendWR{Opcode: f.op, SGList: f.from.sge(0, size), RemoteAddr: f.to.mr.Addr(), RKey: f.to.mr.RKey()})
	}
	for range depth {
		post()
	}
	for {
		select {
		case <-stop:
			return
		case <-f.from.wake:
		}
		f.from.mu.Lock()
		got := f.from.got
		f.from.got = nil
		f.from.mu.Unlock()
		for _, wc := range got {
			if wc.Status != verbs.WCSuccess {
				f.from.t.Errorf("%v; %s", wc.Status, dump(f.from.dev))
				return
			}
			f.moved.Add(size)
			post()
		}
	}
}

// shares returns the rates of the flows in the samples from index first on, relative to their mean.
func (r *congestionRun) shares(first int) (shares []float64, total float64) {
	last := r.moved[len(r.moved)-1]
	for i := range last {
		n := float64(last[i] - r.moved[first][i])
		shares = append(shares, n)
		total += n
	}
	for i := range shares {
		shares[i] *= float64(len(shares)) / total
	}
	return shares, total / (time.Duration(len(r.moved)-1-first) * sampleEvery).Seconds()
}

// longest returns the longest queue in the samples from index first on.
func (r *congestionRun) longest(first int) (most int) {
	for _, n := range r.queued[first:] {
		most = max(most, n)
	}
	return most
}

// checkShared requires that the flows, once they have settled, share the port within the given part of their shares,
// use it, and keep its queue short.
func (r *congestionRun) checkShared(t *testing.T, within float64) {
	t.Helper()
	settled := len(r.moved) / 2
	shares, rate := r.shares(settled)
	t.Logf("shares %.3f of %.0f MB/s; queue at most %d KiB; %d notifications; %+v",
		shares, rate/1e6, r.longest(settled)>>10, r.notes, r.stats)
	for i, s := range shares {
		if s < 1-within || s > 1+within {
			t.Errorf("flow %d has %.2f of its share", i, s)
		}
	}
	if rate < 0.9*bottleneckRate {
		t.Errorf("%.0f MB/s in all, the port carries %.0f", rate/1e6, bottleneckRate/1e6)
	}
	if r.longest(settled) > bottleneckQueue/2 || r.stats.QueueFull > 0 {
		t.Errorf("queue of up to %d bytes, %d packets were dropped", r.longest(settled), r.stats.QueueFull)
	}
}

// TestCongestion: flows that meet at a port that marks share it within 10%, and keep its queue short; without marks the
// queue overflows.
func TestCongestion(t *testing.T) {
	if race.Enabled {
		t.Skip("TestHistories and TestUnreliableNetwork have the same code under the race detector")
	}
	dir := os.Getenv(plotsEnv)
	draw := func(t *testing.T, r *congestionRun, name string) {
		if dir != "" {
			check(t, r.plot(filepath.Join(dir, "congestion-"+name+".svg")))
		}
	}
	for _, c := range []struct {
		name string
		op   verbs.WROpcode
	}{{"writes", verbs.WRRDMAWrite}, {"reads", verbs.WRRDMARead}} {
		b := bottleneck{op: c.op, flows: 4, every: 10 * time.Millisecond, until: 80 * time.Millisecond, mark: true}
		until, evenly := 150*time.Millisecond, 0.15
		if dir == "" { // all four at once, each long enough to even out
			until, evenly = 400*time.Millisecond, 0.1
			b.every, b.until = 0, until
		}
		t.Run(c.name+"/marked", func(t *testing.T) {
			r := b.run(t)
			r.checkShared(t, evenly)
			draw(t, r, c.name+"-marked")
		})
		b.mark = false
		t.Run(c.name+"/unmarked", func(t *testing.T) {
			r := b.run(t)
			t.Logf("queue at most %d KiB; %+v", r.longest(0)>>10, r.stats)
			if r.stats.QueueFull == 0 {
				t.Error("the queue doesn't overflow: nothing is shown by the other case")
			}
			draw(t, r, c.name+"-unmarked")
		})
		for _, flows := range []int{8, 12, 16} {
			t.Run(fmt.Sprintf("%s/%d", c.name, flows), func(t *testing.T) {
				r := bottleneck{op: c.op, flows: flows, mark: true, every: 500 * time.Microsecond, until: until}.run(t)
				r.checkShared(t, evenly)
				if flows == 16 && c.op == verbs.WRRDMAWrite {
					draw(t, r, c.name+"-marked-16")
				}
			})
		}
	}
}

// TestCongestionNotification: when a packet met congestion its sender is notified, at most once in a while, and then
// sends less.
func TestCongestionNotification(t *testing.T) {
	rawTest("told", t, func(t *testing.T, r *rawPeer) {
		window := func() int { return r.dev.dev.qpInfos()[0].Window }
		before := window()
		p := new(wire.Packet)
		wire.MakeCNP(p, wire.QPN(r.dev.qp.QPNum()))
		r.send(p)
		r.expect()
		if window() != before/2 || r.dev.dev.Counters()[CNPHandled] != 1 {
			t.Errorf("window %d after %d", window(), before)
		}
		r.send(p) // in the same round trip
		r.expect()
		if window() != before/2 {
			t.Errorf("window %d after a second one", window())
		}
	})
	rawTest("tells", t, func(t *testing.T, r *rawPeer) {
		r.class = 3
		r.send(r.write(wire.RCWriteOnly, 100, 4, 4), r.write(wire.RCWriteOnly, 101, 4, 4))
		r.expect("CNP 0 +16", "ACK 101 msn 2")
		if p := &r.got[0]; !p.BECN || p.AckReq || p.MigReq {
			t.Errorf("notification %+v", p.BTH)
		}
		r.send(r.write(wire.RCWriteOnly, 102, 4, 4))
		r.expect("ACK 102 msn 3")
		time.Sleep(cnpInterval)
		r.send(r.write(wire.RCWriteOnly, 103, 4, 4))
		r.expect("CNP 0 +16", "ACK 103 msn 4")
		r.class = 2
		time.Sleep(cnpInterval)
		r.send(r.write(wire.RCWriteOnly, 104, 4, 4))
		r.expect("ACK 104 msn 5")
		if c := r.dev.dev.Counters(); c[ECNMarked] != 4 || c[CNPSent] != 2 {
			t.Error(dump(r.dev.dev))
		}
	})
	rawTest("not of packets that aren't the peer's", t, func(t *testing.T, r *rawPeer) {
		r.class = 3
		p := r.write(wire.RCWriteOnly, 100, 4, 4)
		p.PKey = 0x8001
		r.send(p)
		r.expect()
	})
}

// TestTrafficClass: every packet is ECN-capable, and has the DSCP of its connection, or of the device if the connection
// has none; notifications have their own.
func TestTrafficClass(t *testing.T) {
	for _, c := range []struct{ device, conn, want uint8 }{{0, 0, 2}, {26 << 2, 0, 26<<2 | 2}, {26<<2 | 1, 10 << 2, 10<<2 | 2}} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, pairConfig{class: c.conn, device: Config{TrafficClass: c.device}})
			seen := map[wire.Opcode]bool{}
			p.net.SetFilter(func(d *simnet.Datagram) simnet.Action {
				op, want := wire.Opcode(d.Payload[0]), c.want
				switch op {
				case wire.CNP:
					want = 48<<2 | 2
				case wire.UDSendOnly:
					want = c.device&^3 | 2
				}
				if seen[op] = true; d.TrafficClass != want {
					t.Errorf("%v has traffic class %#x, want %#x", op, d.TrafficClass, want)
				}
				return simnet.Action{}
			})
			p.net.SetDefault(simnet.Link{Mark: 1})
			operations[3].run(p, 1000)
			operations[5].run(p, 1000)
			check(t, p.a.dev.SendMAD(addrB, make([]byte, madSize)))
			synctest.Wait()
			for _, op := range []wire.Opcode{
				wire.RCWriteOnly, wire.RCAcknowledge, wire.RCReadRequest, wire.RCReadResponseOnly, wire.CNP, wire.UDSendOnly,
			} {
				if !seen[op] {
					t.Errorf("no %v was sent", op)
				}
			}
		})
	}
}

// TestMarkAfterSlowStart: a mark reduces a window by half while it still grows fast, and by a quarter later; further
// marks in the same round trip change nothing.
func TestMarkAfterSlowStart(t *testing.T) {
	const rtt = time.Millisecond
	w := newWindow(64<<10, minWindow, 1<<20)
	for i, want := range []int{32 << 10, 24 << 10, 18 << 10} {
		for within := range 4 {
			if w.marked(time.Duration(i)*rtt+time.Duration(within)*rtt/4, rtt); w.size != want {
				t.Errorf("%d bytes after mark %d of round trip %d, want %d", w.size, within, i, want)
			}
		}
	}
}
