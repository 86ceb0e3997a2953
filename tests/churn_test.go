package tests

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/fault"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/config"
	"github.com/nvme-anywhere/nvmeof/internal/control"
	"github.com/nvme-anywhere/nvmeof/internal/fuzzing"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// Environment of TestChurn: the number of changes (an hour with one every ten seconds has 360), and the seed of the
// changes, which a failed run prints.
const (
	churnEnv     = "NVMEOF_CHURN"
	churnSeedEnv = "NVMEOF_CHURN_SEED"
	churnChanges = 24
)

const (
	churnHosts  = 100
	churnBlocks = 32   // of each host in the namespace that all use
	churnBlock  = 4096 // bytes
	churnPace   = 50 * time.Millisecond
	churnSettle = 3 * time.Minute
	// churnSettled is the number of changes after which all hosts are waited for.
	churnSettled = 8
	// churnGrowth is the most that the target's memory may grow between two moments at which the same hosts are
	// connected, including its caches.
	churnGrowth = 40 << 20
	churnAway   = 5     // hosts that are forbidden at once, at most
	churnWarm   = 2     // measurements until its pools are filled
	churnLoss   = 0.002 // of the packets of every third RDMA host
)

// TestChurn: a hundred hosts write and read what they wrote, over both transports and two endpoints each, some through
// a network that loses packets, while namespaces, subsystems, hosts, endpoints and ANA states change at random,
// connections are cut, and the target is stopped or killed and restarted. Nobody reads anything wrong; hosts that a
// change doesn't concern keep their connections; every allowed host is back in the end; and after many changes the
// target's memory doesn't grow any more, which takes more of them than a short run has.
func TestChurn(t *testing.T) {
	alone(t)
	changes := int(fuzzing.Number(t, churnEnv, churnChanges))
	seed := fuzzing.Number(t, churnSeedEnv, 1)
	c := newChurn(t, seed)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, h := range c.hosts {
		running.Go(func() { h.work(ctx) })
	}
	c.settle(t)
	for n := range changes {
		c.change(t, n)
		if n%churnSettled == churnSettled-1 {
			c.settle(t)
			c.measure(t)
		}
	}
	c.allowAll(t)
	c.settle(t)
	cancel()
	running.Wait()
	var ops, lost int64
	for _, h := range c.hosts {
		if err := h.wrong.Load(); err != nil {
			t.Errorf("seed %d: %s: %v", seed, h.name, *err)
		}
		ops, lost = ops+h.ops.Load(), lost+h.lost.Load()
	}
	t.Logf("seed %d: %d changes %v; %d commands of %d hosts, %d connections lost to changes", seed, changes, c.counts, ops, len(c.hosts), lost)
	for i, life := range c.lives {
		if len(life) > 2*churnWarm {
			first, last := life[churnWarm-1], life[len(life)-1]
			t.Logf("run %d of the target: %d KiB and %d descriptors, %d changes later %d KiB and %d", i+1,
				first.rss>>10, first.fds, churnSettled*(len(life)-churnWarm), last.rss>>10, last.fds)
		}
	}
	c.target.stop(t)
}

// churn is the target, its hosts, and what changes.
type churn struct {
	rng     *rand.Rand
	dir     string
	addr    netip.Addr
	target  *targetProgram
	client  *control.Client
	hosts   []*churnHost
	proxy   *cutter
	counts  map[string]int
	lives   [][]procFigures // measured in each run of the target
	forbade map[*churnHost]bool
	second  bool // the second endpoint of each transport is there
	extra   bool // so is a second subsystem
	tmp     map[uint32]bool
	size    int64 // of the namespace that all use
}

// Ports of the endpoints: the second may go.
const (
	churnMain   = 4420
	churnSecond = 4421
)

func newChurn(t *testing.T, seed uint64) *churn {
	t.Helper()
	c := &churn{
		rng: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(), addr: freeAddr(t), counts: map[string]int{},
		forbade: map[*churnHost]bool{}, second: true, size: churnHosts * churnBlocks * churnBlock, tmp: map[uint32]bool{},
	}
	c.client = control.NewClient(filepath.Join(c.dir, "control"))
	c.proxy = newCutter(t, netip.AddrPortFrom(c.addr, churnMain))
	clean, lossy := c.rdmaTransport(t, 0), c.rdmaTransport(t, churnLoss)
	plain, err := tcp.NewTransport(tcp.HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "transport", plain.Close)
	for i := range churnHosts {
		h := &churnHost{c: c, index: i, name: fmt.Sprintf("nqn.2026-11.io.nvme-anywhere:churn%d", i), port: churnMain}
		h.cfg = host.Config{
			Transport: plain, SubNQN: testNQN, HostNQN: h.name, Queues: 1, QueueSize: 16, ConnectTimeout: 5 * time.Second, KATO: 20 * time.Second,
			HostID: nvme.HostID{1, byte(i), 15: 1},
		}
		if i%5 == 4 {
			h.port = churnSecond
		}
		h.cfg.Remote = netip.AddrPortFrom(c.addr, uint16(h.port))
		switch {
		case i%2 == 0 && i%3 == 0:
			h.cfg.Transport = lossy
		case i%2 == 0:
			h.cfg.Transport = clean
		case i%3 == 0 && h.port == churnMain:
			h.cfg.Remote, h.cut = c.proxy.addr, true
		}
		h.rng = rand.New(rand.NewPCG(seed, uint64(i)+1))
		for b := range h.may {
			h.may[b] = []uint64{0}
		}
		c.hosts = append(c.hosts, h)
	}
	c.write(t)
	writeText(t, filepath.Join(c.dir, "disk"), "")
	c.grow(t)
	c.start(t)
	return c
}

func (c *churn) rdmaTransport(t *testing.T, loss float64) *rdma.Transport {
	t.Helper()
	cfg := softrnic.Config{}
	if loss > 0 {
		cfg.Fault = &fault.Config{Loss: loss}
	}
	nic, err := softrnic.OpenFor(c.addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "RNIC", nic.Close)
	tr, err := rdma.NewTransport(nic, rdma.HostConfig{})
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "transport", tr.Close)
	return tr
}

// write writes the configuration file.
func (c *churn) write(t *testing.T) {
	t.Helper()
	cfg := config.Config{
		Control: filepath.Join(c.dir, "control"), State: filepath.Join(c.dir, "state"),
		Limits: config.Limits{HostConnections: 4 * churnHosts},
		Listen: c.endpoints(churnMain),
		Subsystems: []config.Subsystem{{NQN: testNQN, Namespaces: []config.Namespace{
			{NSID: 1, Volume: filepath.Join(c.dir, "disk"), ANAGroup: 1},
		}}},
	}
	cfg.Listen = append(cfg.Listen, c.endpoints(churnSecond)...)
	for _, h := range c.hosts {
		cfg.Subsystems[0].Hosts = append(cfg.Subsystems[0].Hosts, h.name)
	}
	b, err := cfg.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(c.dir, "target.yaml"), string(b))
}

func (c *churn) endpoints(port uint16) []cli.Endpoint {
	at := netip.AddrPortFrom(c.addr, port)
	return []cli.Endpoint{{Transport: nvme.TransportRDMA, Addr: at}, {Transport: nvme.TransportTCP, Addr: at}}
}

func (c *churn) start(t *testing.T) {
	t.Helper()
	c.target = startServe(t, c.addr, "--config", filepath.Join(c.dir, "target.yaml"))
	c.lives = append(c.lives, nil)
}

// edit changes the target's configuration, and has it written to the file, as an operator would before a restart.
func (c *churn) edit(t *testing.T, change func(*config.Config)) {
	t.Helper()
	err := c.client.Change(t.Context(), func(cfg *config.Config) error {
		change(cfg)
		return nil
	})
	if err == nil {
		err = c.client.Save(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// concerning runs a change that may cost some hosts their connections.
func (c *churn) concerning(hosts []*churnHost, change func()) {
	for _, h := range hosts {
		h.disturbed.Add(1)
	}
	change()
	for _, h := range hosts {
		h.disturbances.Add(1)
		h.disturbed.Add(-1)
	}
}

func (c *churn) at(port int) (hosts []*churnHost) {
	return slices.DeleteFunc(slices.Clone(c.hosts), func(h *churnHost) bool { return h.port != port })
}

// change makes one random change.
func (c *churn) change(t *testing.T, n int) {
	t.Helper()
	all := []struct {
		name   string
		weight int
		do     func(*testing.T)
	}{
		{"namespace", 8, c.changeNamespace}, {"grow", 4, c.grow}, {"ana", 8, c.changeANA}, {"host", 8, c.changeHost},
		{"endpoint", 4, c.changeEndpoint}, {"subsystem", 4, c.changeSubsystem}, {"reload", 4, c.reload},
		{"cut", 6, c.cutConnections}, {"stop", 1, c.stop}, {"kill", 1, c.kill},
	}
	sum := 0
	for _, x := range all {
		sum += x.weight
	}
	pick := c.rng.IntN(sum)
	i := 0
	for ; pick >= all[i].weight; i++ {
		pick -= all[i].weight
	}
	if n == churnChanges/2 || n == churnChanges-5 { // so that a short run has both, too
		i = len(all) - 1 - n%2
	}
	c.counts[all[i].name]++
	all[i].do(t)
}

// changeNamespace adds a namespace, or removes it.
func (c *churn) changeNamespace(t *testing.T) {
	nsid := 10 + c.rng.Uint32N(8)
	had := c.tmp[nsid]
	c.tmp[nsid] = !had
	c.edit(t, func(cfg *config.Config) {
		s := cfg.Subsystem(testNQN)
		if had {
			s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n config.Namespace) bool { return n.NSID == nsid })
		} else {
			s.Namespaces = append(s.Namespaces, config.Namespace{NSID: nsid, Volume: "mem:1MiB", ANAGroup: 1 + nsid%3})
		}
	})
}

// grow enlarges the namespace that all use.
func (c *churn) grow(t *testing.T) {
	c.size += 1 << 20
	if err := os.Truncate(filepath.Join(c.dir, "disk"), c.size); err != nil {
		t.Fatal(err)
	}
}

// changeANA sets a group's state at one endpoint, or at all.
func (c *churn) changeANA(t *testing.T) {
	states := []nvme.ANAState{nvme.ANAOptimized, nvme.ANANonOptimized, nvme.ANAInaccessible, nvme.ANAOptimized}
	state, group, at := states[c.rng.IntN(len(states))], 1+c.rng.Uint32N(3), c.rng.IntN(3)
	c.edit(t, func(cfg *config.Config) {
		var listen *cli.Endpoint
		if at < 2 {
			listen = &c.endpoints(churnMain)[at]
		}
		cfg.SetANA(group, state, listen)
	})
}

// changeHost forbids a host, or allows one again.
func (c *churn) changeHost(t *testing.T) {
	h := c.hosts[c.rng.IntN(len(c.hosts))]
	away := slices.DeleteFunc(slices.Clone(c.hosts), func(h *churnHost) bool { return !c.forbade[h] })
	if len(away) >= churnAway {
		h = away[c.rng.IntN(len(away))]
	}
	forbid := !c.forbade[h]
	c.concerning([]*churnHost{h}, func() {
		c.edit(t, func(cfg *config.Config) {
			s := cfg.Subsystem(testNQN)
			s.Hosts = slices.DeleteFunc(s.Hosts, func(n string) bool { return n == h.name })
			if !forbid {
				s.Hosts = append(s.Hosts, h.name)
			}
		})
	})
	c.forbade[h] = forbid
	h.away.Store(forbid)
}

func (c *churn) allowAll(t *testing.T) {
	for _, h := range c.hosts {
		c.forbade[h] = false
		h.away.Store(false)
	}
	c.edit(t, func(cfg *config.Config) {
		s := cfg.Subsystem(testNQN)
		s.Hosts = nil
		for _, h := range c.hosts {
			s.Hosts = append(s.Hosts, h.name)
		}
		cfg.ANA = nil
		if !c.second {
			cfg.Listen = append(cfg.Listen, c.endpoints(churnSecond)...)
		}
	})
	c.second = true
}

// changeEndpoint takes the second endpoints away, or adds them.
func (c *churn) changeEndpoint(t *testing.T) {
	second := c.endpoints(churnSecond)
	c.concerning(c.at(churnSecond), func() {
		c.edit(t, func(cfg *config.Config) {
			cfg.Listen = slices.DeleteFunc(cfg.Listen, func(e cli.Endpoint) bool { return slices.Contains(second, e) })
			if !c.second {
				cfg.Listen = append(cfg.Listen, second...)
			}
		})
	})
	c.second = !c.second
}

// changeSubsystem adds another subsystem, or removes it.
func (c *churn) changeSubsystem(t *testing.T) {
	c.edit(t, func(cfg *config.Config) {
		if c.extra {
			cfg.Subsystems = slices.DeleteFunc(cfg.Subsystems, func(s config.Subsystem) bool { return s.NQN == otherNQN })
		} else {
			cfg.Subsystems = append(cfg.Subsystems, config.Subsystem{NQN: otherNQN, Namespaces: []config.Namespace{{NSID: 1, Volume: "mem:1MiB"}}})
		}
	})
	c.extra = !c.extra
}

func (c *churn) reload(t *testing.T) {
	if err := c.client.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// cutConnections cuts the connections of the hosts behind the proxy.
func (c *churn) cutConnections(*testing.T) {
	c.concerning(slices.DeleteFunc(slices.Clone(c.hosts), func(h *churnHost) bool { return !h.cut }), c.proxy.cut)
}

// stop stops the target as an operator does, and starts it again.
func (c *churn) stop(t *testing.T) {
	c.concerning(c.hosts, func() {
		c.target.stop(t)
		c.start(t)
	})
}

// kill kills it.
func (c *churn) kill(t *testing.T) {
	c.concerning(c.hosts, func() {
		c.target.kill()
		c.start(t)
	})
}

// settle waits until every host that may be connected has executed a command since now.
func (c *churn) settle(t *testing.T) {
	t.Helper()
	before := map[*churnHost]int64{}
	for _, h := range c.hosts {
		before[h] = h.turns.Load()
	}
	for _, h := range c.hosts {
		if !h.away.Load() && (c.second || h.port != churnSecond) {
			for deadline := time.Now().Add(churnSettle); h.turns.Load() <= before[h]+1 && h.wrong.Load() == nil; time.Sleep(churnPace) {
				if time.Now().After(deadline) {
					var last error
					if err := h.last.Load(); err != nil {
						last = *err
					}
					t.Fatalf("%s (%s) doesn't work within %v; its last trouble: %v", h.name, h.cfg.Remote, churnSettle, last)
				}
			}
		}
		if err := h.wrong.Load(); err != nil {
			t.Fatalf("%s: %v", h.name, *err)
		}
	}
}

// measure compares the target's memory, descriptors and threads with those when it was first in this state.
func (c *churn) measure(t *testing.T) {
	t.Helper()
	now := c.target.figures(t)
	life := &c.lives[len(c.lives)-1]
	if *life = append(*life, now); len(*life) <= churnWarm {
		return
	}
	first := (*life)[churnWarm-1]
	if now.rss > first.rss+churnGrowth || now.fds > first.fds+churnHosts || now.threads > first.threads+16 {
		t.Errorf("the target grew from %+v to %+v", first, now)
	}
}

// churnHost is one host.
type churnHost struct {
	c     *churn
	index int
	name  string
	port  int
	cut   bool // through the proxy
	cfg   host.Config
	rng   *rand.Rand

	// may is what each of its blocks may hold: more than one stamp if a write was interrupted.
	may   [churnBlocks][]uint64
	stamp uint64

	disturbed    atomic.Int64 // ongoing changes that concern it
	disturbances atomic.Int64 // past ones
	away         atomic.Bool  // it is forbidden
	ops, lost    atomic.Int64
	turns        atomic.Int64 // number of commands that were answered
	wrong        atomic.Pointer[error]
	last         atomic.Pointer[error] // why it could not connect, or lost its connection
}

func (h *churnHost) fail(err error) { h.wrong.CompareAndSwap(nil, &err) }

// work connects, and works until the connection is lost, again and again.
func (h *churnHost) work(ctx context.Context) {
	pause := time.NewTicker(churnPace)
	defer pause.Stop()
	for ctx.Err() == nil && h.wrong.Load() == nil {
		seen := h.disturbances.Load()
		ctrl, err := host.Connect(ctx, h.cfg)
		if err != nil {
			h.last.Store(&err)
			for range 4 {
				<-pause.C
			}
			continue
		}
		err = h.use(ctx, ctrl, pause)
		if ctx.Err() != nil {
			err = nil
		}
		_ = ctrl.Close() // it may be lost
		// A target that ends a connection may answer what waits in it first.
		if errors.Is(err, host.ErrLost) || errors.Is(err, nvme.StatusAbortSQDeleted) {
			h.lost.Add(1)
			h.last.Store(&err)
			if h.disturbed.Load() == 0 && h.disturbances.Load() == seen {
				h.fail(fmt.Errorf("lost a connection that nothing concerned: %w", err))
			}
			for range 4 { // what was under way at the target ends meanwhile
				<-pause.C
			}
		} else if err != nil {
			h.fail(err)
		}
	}
}

// use writes and reads until the connection is lost.
func (h *churnHost) use(ctx context.Context, ctrl *host.Controller, pause *time.Ticker) error {
	b, err := ctrl.Alloc(churnBlock)
	if err != nil {
		return err
	}
	defer ctrl.Free(b)
	for ctx.Err() == nil {
		block := h.rng.IntN(churnBlocks)
		if h.rng.IntN(2) == 0 {
			err = h.write(ctx, ctrl, b, block)
		} else {
			err = h.read(ctx, ctrl, b, block)
		}
		switch {
		case err == nil:
			h.ops.Add(1)
			h.turns.Add(1)
		case errors.Is(err, nvme.StatusANAInaccessible) || errors.Is(err, nvme.StatusANATransition):
			h.turns.Add(1) // not this way, for now
		default:
			return err
		}
		<-pause.C
	}
	return nil
}

func (h *churnHost) do(ctx context.Context, ctrl *host.Controller, op nvme.Opcode, b []byte, block int) error {
	r := host.Request{Data: b}
	r.Cmd.SetIO(op, 1, uint64(h.index*churnBlocks+block), 1, 0)
	return ctrl.Queues()[0].Do(ctx, &r)
}

func (h *churnHost) write(ctx context.Context, ctrl *host.Controller, b []byte, block int) error {
	h.stamp++
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], h.stamp<<16|uint64(h.index)<<8|uint64(block))
	}
	err := h.do(ctx, ctrl, nvme.OpWrite, b, block)
	switch {
	case err == nil:
		h.may[block] = []uint64{h.stamp}
	case !errors.Is(err, nvme.StatusANAInaccessible) && !errors.Is(err, nvme.StatusANATransition):
		h.may[block] = append(h.may[block], h.stamp)
	}
	return err
}

func (h *churnHost) read(ctx context.Context, ctrl *host.Controller, b []byte, block int) error {
	if err := h.do(ctx, ctrl, nvme.OpRead, b, block); err != nil {
		return err
	}
	first := binary.LittleEndian.Uint64(b)
	for i := 8; i < len(b); i += 8 {
		if v := binary.LittleEndian.Uint64(b[i:]); v != first {
			return fmt.Errorf("block %d is torn: it begins with %#x and has %#x at %d", block, first, v, i)
		}
	}
	stamp := first >> 16
	if !slices.Contains(h.may[block], stamp) || stamp != 0 && first&0xffff != uint64(h.index)<<8|uint64(block) {
		return fmt.Errorf("block %d has %#x, it may have %#x", block, first, h.may[block])
	}
	h.may[block] = []uint64{stamp}
	return nil
}
