package simulation

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/simnet"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// nemesis makes everything go wrong, one thing after another, and ends each fault after a while.
type nemesis struct {
	w   *world
	rng *rand.Rand

	mu      sync.Mutex
	repairs map[int]func() // of the faults that last
	next    int
	held    map[netip.Addr]time.Time // until when everything from and to an address is held back
	damage  float64                  // probability that a segment of TCP is damaged without its checksum showing that
	dice    *rand.Rand               // for that
}

func newNemesis(w *world, rng *rand.Rand) *nemesis {
	n := &nemesis{w: w, rng: rng, repairs: map[int]func(){}, held: map[netip.Addr]time.Time{}, dice: rand.New(rand.NewPCG(rng.Uint64(), 0))}
	w.net.SetFilter(n.pass)
	return n
}

// pass is the network's filter: it holds back what comes from a machine that stands still, or goes there, and damages
// segments of TCP.
func (n *nemesis) pass(d *simnet.Datagram) simnet.Action {
	n.mu.Lock()
	defer n.mu.Unlock()
	var delay time.Duration
	for _, a := range []netip.Addr{d.Src.Addr(), d.Dst.Addr()} {
		delay = max(delay, time.Until(n.held[a]))
	}
	if d.TCP() && len(d.Payload) > 0 && n.dice.Float64() < n.damage {
		bit := n.dice.IntN(8 * len(d.Payload))
		d.Payload[bit/8] ^= 1 << (bit % 8)
	}
	return simnet.Action{Delay: delay}
}

// until has repair called after d, or by heal.
func (n *nemesis) until(d time.Duration, repair func()) {
	n.mu.Lock()
	id := n.next
	n.next++
	n.repairs[id] = repair
	n.mu.Unlock()
	time.AfterFunc(d, func() { n.repair(id) })
}

func (n *nemesis) repair(id int) {
	n.mu.Lock()
	f := n.repairs[id]
	delete(n.repairs, id)
	n.mu.Unlock()
	if f != nil {
		f()
	}
}

// heal ends all faults.
func (n *nemesis) heal() {
	n.mu.Lock()
	var ids []int
	for id := range n.repairs {
		ids = append(ids, id)
	}
	n.mu.Unlock()
	slices.Sort(ids)
	for _, id := range ids {
		n.repair(id)
	}
}

// run makes things go wrong for a time, and then repairs them.
func (n *nemesis) run(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(n.between(20*time.Millisecond, time.Second))
		n.strike()
	}
	n.heal()
}

func (n *nemesis) between(least, most time.Duration) time.Duration {
	return least + time.Duration(n.rng.Int64N(int64(most-least)))
}

func pick[T any](rng *rand.Rand, all []T) T { return all[rng.IntN(len(all))] }

// strikes are what may go wrong, and how likely each of them is.
var strikes = []struct {
	name    string
	weight  int
	strike  func(n *nemesis)
	network bool
}{
	{"cut", 8, (*nemesis).cut, true},
	{"isolate", 3, (*nemesis).isolate, true},
	{"degrade", 6, (*nemesis).degrade, true},
	{"hold", 5, (*nemesis).hold, true},
	{"corrupt", 3, (*nemesis).corrupt, true},
	{"stall", 2, (*nemesis).stall, true},
	{"freeze", 6, (*nemesis).freeze, false},
	{"fail", 4, (*nemesis).fail, false},
	{"grow", 1, (*nemesis).grow, false},
	{"ana", 5, (*nemesis).ana, false},
	{"remove", 3, (*nemesis).remove, false},
	{"deny", 2, (*nemesis).deny, false},
	{"reset", 4, (*nemesis).reset, false},
	{"restart", 3, (*nemesis).restart, false},
	{"drain", 2, (*nemesis).drain, false},
	{"reboot", 2, (*nemesis).reboot, false},
	{"secret", 1, (*nemesis).secret, false},
}

func (n *nemesis) strike() {
	total := 0
	for _, s := range strikes {
		total += s.weight
	}
	at := n.rng.IntN(total)
	for _, s := range strikes {
		if at -= s.weight; at >= 0 {
			continue
		}
		if !s.network || !n.w.unordered {
			n.w.logf("%s", s.name)
			s.strike(n)
		}
		return
	}
}

// cut loses everything between two addresses, or what goes one way.
func (n *nemesis) cut() {
	from, to := pick(n.rng, pick(n.rng, n.w.hosts).addrs), pick(n.rng, pick(n.rng, n.w.servers).addrs)
	ways := n.rng.IntN(3)
	if ways != 1 {
		n.w.net.Cut(from, to)
	}
	if ways != 2 {
		n.w.net.Cut(to, from)
	}
	d := n.between(10*time.Millisecond, 8*time.Second)
	if n.rng.IntN(2) == 0 {
		d = n.aboutKATO()
	}
	n.until(d, func() {
		n.w.net.Restore(from, to)
		n.w.net.Restore(to, from)
	})
}

// aboutKATO draws a time after which some have given up connections, and others haven't.
func (n *nemesis) aboutKATO() time.Duration {
	return n.between(n.w.limits.kato/2, n.w.limits.kato*3/2)
}

// anyAddr stands for all addresses.
var anyAddr netip.Addr

// isolate cuts an address off from all others.
func (n *nemesis) isolate() {
	a := pick(n.rng, n.w.addrs)
	n.w.net.Cut(a, anyAddr)
	n.w.net.Cut(anyAddr, a)
	n.until(n.between(10*time.Millisecond, 8*time.Second), func() {
		n.w.net.Restore(a, anyAddr)
		n.w.net.Restore(anyAddr, a)
	})
}

// degrade makes the ways between two addresses bad.
func (n *nemesis) degrade() {
	from, to := pick(n.rng, pick(n.rng, n.w.hosts).addrs), pick(n.rng, pick(n.rng, n.w.servers).addrs)
	some := func(most float64) float64 {
		if n.rng.IntN(3) > 0 {
			return 0
		}
		return most * n.rng.Float64()
	}
	for range 2 {
		l := simnet.Link{
			Latency: n.between(time.Microsecond, 5*time.Millisecond), Jitter: time.Duration(some(float64(5 * time.Millisecond))),
			Loss: some(0.1), Duplicate: some(0.1), Corrupt: some(0.05), Reorder: some(0.2), ReorderDelay: n.between(time.Microsecond, 20*time.Millisecond),
			Burst: simnet.Burst{Enter: some(0.01), Leave: 0.05}, Mark: some(0.2),
		}
		n.w.net.SetLink(from, to, l)
		from, to = to, from
	}
	n.until(n.between(100*time.Millisecond, 5*time.Second), func() {
		n.w.net.SetLink(from, to, goodLink)
		n.w.net.SetLink(to, from, goodLink)
	})
}

// hold lets an address stand still, for less time than it takes others to give it up: what arrives after that may be
// late (docs/multipath.md).
func (n *nemesis) hold() {
	a := pick(n.rng, n.w.addrs)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[a] = time.Now().Add(n.between(time.Millisecond, longestHold))
}

const longestHold = 300 * time.Millisecond

// corrupt damages what digests cover, for a while.
func (n *nemesis) corrupt() {
	if !n.w.tcp.covered() {
		return
	}
	n.setDamage(0.05 * n.rng.Float64())
	n.until(n.between(10*time.Millisecond, 3*time.Second), func() { n.setDamage(0) })
}

func (n *nemesis) setDamage(p float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.damage = p
}

// stall lets a port of NVMe/TCP stand still, about until hosts give up their connections to it: the target then finds
// what they had sent before, and that they are gone (docs/multipath.md). The network must not lose that.
func (n *nemesis) stall() {
	a := pick(n.rng, pick(n.rng, n.w.servers).addrs)
	if n.w.kinds[a] != nvme.TransportTCP {
		return
	}
	n.heal()
	time.Sleep(longestHold)
	d := n.aboutKATO()
	n.w.net.TCP().Stall(a, d)
	time.Sleep(d)
}

func (n *nemesis) faultyDisk() *disk {
	for {
		if d := pick(n.rng, n.w.disks); d.freeze != nil {
			return d
		}
	}
}

func (n *nemesis) freeze() {
	d := n.faultyDisk()
	d.freeze.Freeze()
	n.until(n.between(10*time.Millisecond, 8*time.Second), d.freeze.Thaw)
}

func (n *nemesis) fail() {
	d := n.faultyDisk()
	most := 2 * time.Second
	if n.w.unordered {
		most = 15 * time.Second // longer than hosts wait
	}
	d.faults.set(n.between(time.Microsecond, most), 0.2*n.rng.Float64())
	n.until(n.between(100*time.Millisecond, 3*time.Second), func() { d.faults.set(0, 0) })
}

func (n *nemesis) grow() { n.faultyDisk().faults.grow() }

// ana changes the state of a group at a port.
func (n *nemesis) ana() {
	s := pick(n.rng, n.w.servers)
	tgt, port, group := s.target, uint16(1+n.rng.IntN(len(s.addrs))), uint32(1+n.rng.IntN(len(n.w.disks)))
	states := []nvme.ANAState{nvme.ANAOptimized, nvme.ANANonOptimized, nvme.ANAInaccessible, nvme.ANAChange}
	n.w.check("SetANAState", tgt.SetANAState(port, group, pick(n.rng, states)))
	n.until(n.between(10*time.Millisecond, 5*time.Second), func() {
		if err := tgt.SetANAState(port, group, nvme.ANAOptimized); !errors.Is(err, target.ErrClosed) { // restarted meanwhile
			n.w.check("SetANAState", err)
		}
	})
}

// remove takes a namespace away for a while.
func (n *nemesis) remove() {
	i := n.rng.IntN(len(n.w.disks))
	s := pick(n.rng, n.w.servers)
	if i == keptDisk {
		return
	}
	sub := s.target.Subsystem(subNQN)
	n.w.check("RemoveNamespace", sub.RemoveNamespace(uint32(i+1)))
	time.Sleep(n.between(time.Microsecond, time.Second))
	_, err := sub.AddNamespace(n.w.namespace(i, n.w.disks[i]))
	n.w.check("AddNamespace", err)
}

// deny forbids the subsystem to a host, which gives its paths up.
func (n *nemesis) deny() {
	s, m := pick(n.rng, n.w.servers), pick(n.rng, n.w.hosts)
	var others []string
	for _, o := range n.w.hosts {
		if o != m {
			others = append(others, o.nqn)
		}
	}
	sub := s.target.Subsystem(subNQN)
	n.w.check("SetHosts", sub.SetHosts(false, others))
	s.target.DisconnectRevoked()
	time.Sleep(n.between(time.Millisecond, 2*time.Second))
	n.w.check("SetHosts", sub.SetHosts(true, nil))
}

// reset ends a controller of a host.
func (n *nemesis) reset() {
	if all := pick(n.rng, n.w.hosts).subsystem().Controllers(); len(all) > 0 {
		_ = pick(n.rng, all).Close() // it may just have been lost
	}
}

// restart stops a target, and starts it again later.
func (n *nemesis) restart() {
	s := pick(n.rng, n.w.servers)
	var drain time.Duration
	unplug := false
	switch way := n.rng.IntN(4); {
	case way == 0:
		drain = n.between(time.Millisecond, 3*time.Second)
	case way == 1 && !n.w.unordered: // without a word
		for _, a := range s.addrs {
			n.w.net.Cut(a, anyAddr)
			defer n.w.net.Restore(a, anyAddr)
		}
	case way == 2:
		unplug = true
	}
	n.w.stop(s, drain, unplug)
	time.Sleep(n.between(time.Millisecond, 5*time.Second))
	n.w.check("start", s.start())
}

// drain has a target refuse hosts for a while.
func (n *nemesis) drain() {
	s := pick(n.rng, n.w.servers)
	ctx, cancel := context.WithTimeout(context.Background(), n.between(time.Millisecond, 2*time.Second))
	defer cancel()
	_ = s.target.Drain(ctx) // what was cut off is sent again
	time.Sleep(n.between(time.Millisecond, time.Second))
	s.target.Resume()
}

// reboot ends a host, and starts it again later.
func (n *nemesis) reboot() {
	pick(n.rng, n.w.hosts).reboot(n.between(time.Millisecond, 2*time.Second))
}

// secret gives a host another secret, at all targets first and then there.
func (n *nemesis) secret() {
	w := n.w
	now := w.authentication()
	if now == nil {
		return
	}
	m := pick(n.rng, w.hosts)
	a := &target.Authentication{Hosts: maps.Clone(now.Hosts), DHGroups: now.DHGroups}
	a.Hosts[m.nqn] = target.HostSecrets{Host: newSecret()}
	w.setAuthentication(a)
	for _, s := range w.servers {
		n.w.check("SetAuthentication", s.target.SetAuthentication(a))
		s.target.DisconnectRevoked()
	}
	time.Sleep(n.between(time.Microsecond, time.Second))
}
