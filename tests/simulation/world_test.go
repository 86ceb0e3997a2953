package simulation

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// goodLink is how every two addresses are connected while nothing is wrong.
var goodLink = simnet.Link{Latency: 20 * time.Microsecond, Bandwidth: 1.25e9}

// limits are the options of all hosts.
type limits struct {
	kato, connect, io, reconnect, fastFail time.Duration
	policy                                 multipath.Policy
	think                                  time.Duration // pause of a client, at most
}

// world is everything: the network, machines, and who uses and hurts them.
type world struct {
	t      *testing.T
	seed   uint64
	began  time.Time
	net    *simnet.Network
	limits limits
	// unordered: disks execute requests in any order. Of a path whose loss the target doesn't notice, or that isn't the
	// only one, writes may then be late (docs/multipath.md): so there is one for each host, and the network is good.
	unordered bool
	disks     []*disk
	histories []*history
	servers   []*server
	hosts     []*machine
	addrs     []netip.Addr                      // of all
	kinds     map[netip.Addr]nvme.TransportType // of the targets' ports
	tcp       overTCP
	clients   []*client
	keeper    *keeper // nil if there are several targets, which know nothing of each other's reservations
	nemesis   *nemesis
	stamps    atomic.Uint64

	mu   sync.Mutex
	auth *target.Authentication // nil: nobody has to authenticate himself
	log  []string
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	w := &world{t: t, seed: seed, began: time.Now(), net: simnet.New(seed), kinds: map[netip.Addr]nvme.TransportType{}}
	w.net.SetDefault(goodLink)
	w.limits = drawLimits(rng)
	w.unordered = rng.IntN(4) == 0
	for i := range 2 + rng.IntN(2) {
		w.disks = append(w.disks, newDisk(t, rng, i, w.unordered))
		w.histories = append(w.histories, newHistory(w.disks[i].blocks))
	}
	w.tcp = drawTCP(rng)
	w.drawServers(rng)
	w.drawHosts(rng)
	if len(w.servers) == 1 {
		w.keeper = newKeeper(w, rand.New(rand.NewPCG(rng.Uint64(), 0)))
	}
	w.nemesis = newNemesis(w, rand.New(rand.NewPCG(rng.Uint64(), 0)))
	for _, s := range w.servers {
		w.check("start", s.start())
	}
	for _, m := range w.hosts {
		w.check("open", m.open())
		if err := m.connect(); err != nil {
			w.t.Fatalf("seed %d: connect: %v", seed, err)
		}
	}
	w.logf("unordered %v, %d disks, %d targets, %d hosts, %d clients, %v, %+v, %+v",
		w.unordered, len(w.disks), len(w.servers), len(w.hosts), len(w.clients), w.kinds, w.tcp, w.limits)
	return w
}

func drawLimits(rng *rand.Rand) limits {
	duration := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)))
	}
	l := limits{
		kato: duration(500*time.Millisecond, 3*time.Second), connect: duration(time.Second, 5*time.Second),
		io: duration(time.Second, 6*time.Second), reconnect: duration(100*time.Millisecond, 2*time.Second),
		policy: multipath.Policy(rng.IntN(2)), think: duration(time.Millisecond, 100*time.Millisecond),
	}
	if rng.IntN(2) == 0 {
		l.fastFail = duration(time.Millisecond, 5*time.Second)
	}
	return l
}

// drawServers draws the targets and their ports.
func (w *world) drawServers(rng *rand.Rand) {
	kinds := pick(rng, [][]nvme.TransportType{{nvme.TransportRDMA}, {nvme.TransportTCP}, {nvme.TransportRDMA, nvme.TransportTCP}})
	targets, ports := 1+rng.IntN(2), 3
	if w.unordered {
		targets, ports = 1, 1
	}
	for i := range targets {
		s := &server{w: w, store: &store{kept: map[string][]byte{}}}
		for k := range 1 + rng.IntN(ports) {
			a := w.addr(1, i, k)
			s.addrs = append(s.addrs, a)
			w.kinds[a] = pick(rng, kinds)
		}
		w.servers = append(w.servers, s)
	}
}

// drawHosts draws the hosts, their secrets and who uses them.
func (w *world) drawHosts(rng *rand.Rand) {
	withAuth := rng.IntN(3) == 0
	if withAuth {
		w.auth = &target.Authentication{Hosts: map[string]target.HostSecrets{}, DHGroups: []nvme.DHGroup{nvme.DHNull}}
	}
	for i := range 2 + rng.IntN(2) {
		m := &machine{w: w, index: i, turn: make(chan struct{}, 1), id: nvme.HostID{byte(i + 1), 15: 1}}
		m.nqn = m.id.NQN()
		for k := range 1 + rng.IntN(2) {
			m.addrs = append(m.addrs, w.addr(2, i, k))
		}
		for _, s := range w.servers {
			for k, a := range s.addrs {
				m.paths = append(m.paths, route{k % len(m.addrs), a})
			}
		}
		if withAuth {
			w.auth.Hosts[m.nqn] = target.HostSecrets{Host: newSecret()}
		}
		w.hosts = append(w.hosts, m)
		for range 1 + rng.IntN(4) {
			w.clients = append(w.clients, &client{m: m, rng: rand.New(rand.NewPCG(rng.Uint64(), 0)), buf: make([]byte, 1<<17)})
		}
	}
}

// addr gives a machine an address.
func (w *world) addr(net, machine, nic int) netip.Addr {
	a := netip.AddrFrom4([4]byte{10, byte(net), byte(machine), byte(nic + 1)})
	w.addrs = append(w.addrs, a)
	return a
}

// namespace returns the configuration of the namespace on a disk.
func (w *world) namespace(i int, d *disk) target.NamespaceConfig {
	return target.NamespaceConfig{NSID: uint32(i + 1), Volume: d.volume, UUID: d.uuid, ANAGroup: uint32(i + 1)}
}

// authentication returns what targets and hosts know of secrets.
func (w *world) authentication() *target.Authentication {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.auth
}

func (w *world) setAuthentication(a *target.Authentication) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.auth = a
}

func (w *world) stamp() uint64 { return w.stamps.Add(1) }

func (w *world) errorf(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("seed %d, %v: %s", w.seed, time.Since(w.began), fmt.Sprintf(format, args...))
}

func (w *world) check(what string, err error) {
	if err != nil {
		w.t.Helper()
		w.errorf("%s: %v", what, err)
	}
}

// logf notes what happens, which is told if the test fails.
func (w *world) logf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf("%v: %s", time.Since(w.began), fmt.Sprintf(format, args...)))
}

// tell tells what has happened, if the test has failed.
func (w *world) tell() {
	if w.t.Failed() {
		w.t.Logf("%s=%d repeats it; what happened:\n%s", seedEnv, w.seed, strings.Join(w.log, "\n"))
	}
}

// stop stops a target.
func (w *world) stop(s *server, drain time.Duration, unplug bool) {
	forgets := w.keeper != nil && !w.keeper.persist
	if forgets {
		w.keeper.lost()
	}
	w.check("stop", s.stop(drain, unplug))
	if forgets {
		w.keeper.lost()
	}
}

// round lets clients work while things go wrong, and checks that afterwards everything is as it was.
func (w *world) round(d time.Duration) {
	stop := make(chan struct{})
	var working, tending sync.WaitGroup
	for _, c := range w.clients {
		working.Go(func() { c.run(stop) })
	}
	if w.keeper != nil {
		working.Go(func() { w.keeper.run(stop) })
	}
	for _, m := range w.hosts {
		tending.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(200 * time.Millisecond):
					m.tend()
				}
			}
		})
	}
	w.nemesis.run(d)
	close(stop)
	tending.Wait()
	w.logf("healed")
	healed := time.Now()
	w.connected()
	working.Wait()
	if took := time.Since(healed); took > recovery {
		w.errorf("operations ended %v after the last fault", took)
	}
	if w.keeper != nil {
		w.check("reservations", w.keeper.end())
	}
	time.Sleep(2 * w.limits.io) // until hosts have given up controllers that were hurt
	w.connected()
	time.Sleep(4*w.limits.kato + w.limits.connect) // until targets have given up what hosts have
	for _, h := range w.histories {
		h.settled()
	}
	w.readAll()
	w.quiet()
	for i, h := range w.histories {
		if err := h.check(); err != nil {
			w.errorf("disk %d: %v", i, err)
		}
	}
}

// recovery is how long hosts may take to be connected by all paths again, and operations to end.
const recovery = time.Minute

// connected waits until every path is live.
func (w *world) connected() {
	for end := time.Now().Add(recovery); ; time.Sleep(100 * time.Millisecond) {
		all := true
		for _, m := range w.hosts {
			all = m.tend() && all
		}
		if all {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	for _, m := range w.hosts {
		for _, r := range m.paths {
			if p := m.state(r); p.State != multipath.Live {
				w.errorf("host %d: %s is %v long after the last fault: %v", m.index, p.Name(), p.State, p.Err)
			}
		}
	}
}

// readAll has every host read everything.
func (w *world) readAll() {
	for _, m := range w.hosts {
		c := &client{m: m, buf: make([]byte, 1<<17)}
		for i, d := range w.disks {
			for b := 0; b < d.blocks; b += 4 {
				if err := c.read(w.t.Context(), rang{i, b, 4}); err != nil {
					w.errorf("host %d can't read although nothing is wrong: %v", m.index, err)
				}
			}
		}
	}
}

// quiet checks that nothing is left of all that has happened, while nobody does anything.
func (w *world) quiet() {
	time.Sleep(time.Second)
	controllers := map[netip.Addr]int{} // by port
	for _, m := range w.hosts {
		w.quietHost(m, controllers)
	}
	for i, d := range w.disks {
		if d.faults != nil && d.faults.busy() != 0 {
			w.errorf("disk %d has %d requests", i, d.faults.busy())
		}
	}
	for i, s := range w.servers {
		w.quietServer(i, s, controllers)
	}
}

// quietHost is quiet for a host. It counts its controllers.
func (w *world) quietHost(m *machine, controllers map[netip.Addr]int) {
	sub := m.subsystem()
	if n := sub.Waiting(); n != 0 {
		w.errorf("host %d: %d requests wait", m.index, n)
	}
	for _, p := range sub.Paths() {
		controllers[p.Remote.Addr()]++
		if p.UnderWay != 0 {
			w.errorf("host %d: %s has %d requests under way", m.index, p.Name(), p.UnderWay)
		}
		if was, lost := p.Counters.Connects.Load(), p.Counters.Losses.Load(); was != lost+1 {
			w.errorf("host %d: %s is live, was so %d times and lost %d times", m.index, p.Name(), was, lost)
		}
	}
	for _, c := range sub.Controllers() {
		for _, q := range c.Queues() {
			n := q.Counters()
			if sent, back := n.Submitted.Load(), n.Completed.Load()+n.Cut.Load(); sent != back {
				w.errorf("host %d: queue %d has sent %d commands and got %d back", m.index, q.ID(), sent, back)
			}
		}
	}
}

// quietServer is quiet for a target to whose ports hosts have so many controllers.
func (w *world) quietServer(i int, s *server, controllers map[netip.Addr]int) {
	want, byKind := 0, map[nvme.TransportType]int{}
	for k, a := range s.addrs {
		want += controllers[a]
		byKind[w.kinds[a]] += 3 * controllers[a]
		if got := s.ports[k].connections.Load(); got != int64(3*controllers[a]) {
			w.errorf("target %d: %d connections at %v, want %d", i, got, a, 3*controllers[a])
		}
	}
	snap := s.target.Snapshot()
	if snap.Controllers != want || snap.Connections != 3*want {
		w.errorf("target %d: %d controllers and %d connections, want %d and %d", i, snap.Controllers, snap.Connections, want, 3*want)
	}
	for _, tr := range snap.Transports {
		if want := byKind[tr.Transport]; tr.Queues != want || tr.Connects-tr.Disconnects != uint64(want) {
			w.errorf("target %d: %d queues of %v, %d connects and %d disconnects; want %d queues", i, tr.Queues, tr.Transport, tr.Connects, tr.Disconnects, want)
		}
	}
	for _, sub := range snap.Subsystems {
		for _, ns := range sub.Namespaces {
			if ns.Users != 0 {
				w.errorf("target %d: namespace %d has %d users", i, ns.NSID, ns.Users)
			}
		}
		for _, c := range sub.Controllers {
			for _, q := range c.Queues {
				if q.QID != 0 && q.InFlight != 0 {
					w.errorf("target %d: queue %d of controller %d has %d commands", i, q.QID, c.CNTLID, q.InFlight)
				}
			}
		}
	}
}

// close ends everything.
func (w *world) close() {
	for _, m := range w.hosts {
		w.check("close", m.close())
	}
	for _, s := range w.servers {
		w.check("stop", s.stop(0, false))
	}
	for _, d := range w.disks {
		w.check("close", d.volume.Close())
	}
}
