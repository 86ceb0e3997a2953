package target

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nvme-anywhere/nvmeof/internal/crowd"
	"github.com/nvme-anywhere/nvmeof/internal/limitlog"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Target is the engine: subsystems, controllers and queues behind any number of transports.
type Target struct {
	limits Limits
	log    *slog.Logger
	epoch  time.Time // Now counts from here
	store  Store     // nil: nothing persists
	loaded loaded    // from store, by CheckNamespaces

	auth      atomic.Pointer[Authentication] // nil: no host has to authenticate itself
	computing authTurns                      // of authentications

	buffers bufferList

	discovery *Subsystem

	mu          sync.Mutex
	closed      bool
	draining    bool
	idle        chan struct{} // closed when the last queue of a closed target is gone
	subsystems  map[string]*Subsystem
	inOrder     []*Subsystem    // subsystems by name; nil if it has to be rebuilt
	changing    map[string]bool // subsystems that are being added, or removed
	ports       []Port
	referrals   []Referral
	generation  uint64 // GENCTR of the discovery log
	queues      map[*Queue]struct{}
	newcomers   crowd.Crowd[*Queue] // of queues
	leaving     int                 // queues that give way and are still there
	controllers map[uint16]*controller
	lastCNTLID  uint16 // handed out in turn, so that one that a host may remember isn't reused soon
	nextShard   int
	transports  map[nvme.TransportType]*transportTotals
}

// transportTotals are the counters of one transport. They outlive the queues that they count.
type transportTotals struct {
	connects, disconnects, failures uint64
	lostHosts                       uint64
	refusedConnects                 uint64
	keepAliveTimeouts               uint64
	authentications, authFailures   uint64
	gaveWay                         uint64
	retired                         IOStats
}

// New makes a target. The errors are those of Config.Validate and of AddSubsystem.
func New(c Config) (*Target, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t := &Target{
		limits:      c.Limits.withDefaults(),
		log:         limitlog.New(c.Log),
		epoch:       time.Now(),
		store:       c.Store,
		computing:   authTurns{free: computingPlaces(), waiting: map[netip.Addr][]chan struct{}{}},
		idle:        make(chan struct{}),
		subsystems:  map[string]*Subsystem{},
		changing:    map[string]bool{},
		queues:      map[*Queue]struct{}{},
		controllers: map[uint16]*controller{},
		// A host that outlives a restart of the target remembers the old controllers.
		lastCNTLID: uint16(rand.IntN(int(nvme.CNTLIDMax))),
		transports: map[nvme.TransportType]*transportTotals{},
	}
	if err := t.SetAuthentication(c.Authentication); err != nil {
		return nil, err
	}
	t.discovery = discoverySubsystem(t, c.DiscoveryNQN)
	for i := range c.Ports {
		if err := t.addPort(c.Ports[i]); err != nil {
			return nil, err
		}
	}
	for i := range c.Referrals {
		if err := t.AddReferral(c.Referrals[i]); err != nil {
			return nil, err
		}
	}
	for i := range c.Subsystems {
		if _, err := t.AddSubsystem(c.Subsystems[i]); err != nil {
			t.closeSubsystems()
			return nil, err
		}
	}
	return t, nil
}

// Now returns the target's clock: the time since it was made, in nanoseconds. It reads only the monotonic clock, at
// half the cost of time.Now. That is still as much as a fast volume's work, so a transport reads it once for all
// commands that arrived together (Request.Arrived).
func (t *Target) Now() int64 { return int64(time.Since(t.epoch)) }

// AddSubsystem adds a subsystem with its namespaces. The error is ErrConfig, ErrExists (also while RemoveSubsystem
// hasn't returned), ErrClosed, ErrState, or that of the Store; then nothing was added.
func (t *Target) AddSubsystem(c SubsystemConfig) (*Subsystem, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := t.claim(c.NQN); err != nil {
		return nil, err
	}
	defer t.disclaim(c.NQN)
	s := newSubsystem(t, &c)
	err := s.open(c.Namespaces)
	if err == nil {
		err = t.enter(s)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	t.discoveryChanged()
	s.resumeSanitize()
	return s, nil
}

// claim reserves the name of a subsystem, so that what is stored under it isn't opened twice.
func (t *Target) claim(nqn string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.subsystems[nqn] != nil || t.discovery.nqn == nqn:
		return fmt.Errorf("target: subsystem %s %w", nqn, ErrExists)
	case t.changing[nqn]:
		return fmt.Errorf("target: subsystem %s %w: it is being added, or removed", nqn, ErrExists)
	}
	t.changing[nqn] = true
	return nil
}

// disclaim ends a claim.
func (t *Target) disclaim(nqn string) {
	t.mu.Lock()
	delete(t.changing, nqn)
	t.mu.Unlock()
}

// enter puts a subsystem into the table. Its name must be claimed.
func (t *Target) enter(s *Subsystem) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.subsystems[s.nqn], t.inOrder = s, nil
	t.generation++
	barred := t.barredGroups() // they may have changed since its namespaces were published
	s.bar(&barred)
	return nil
}

// Subsystem finds a subsystem by its NQN; nil if there is none.
func (t *Target) Subsystem(nqn string) *Subsystem {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.subsystems[nqn]
}

// RemoveSubsystem removes a subsystem, disconnects its hosts, and returns when no request uses its volumes any more.
// The error is ErrNotFound.
func (t *Target) RemoveSubsystem(nqn string) error {
	wait, err := t.TakeSubsystem(nqn)
	if err == nil {
		wait()
	}
	return err
}

// TakeSubsystem is to RemoveSubsystem what [Subsystem.TakeNamespace] is to RemoveNamespace.
func (t *Target) TakeSubsystem(nqn string) (wait func(), err error) {
	t.mu.Lock()
	s := t.subsystems[nqn]
	if s == nil {
		t.mu.Unlock()
		return nil, fmt.Errorf("target: subsystem %s %w", nqn, ErrNotFound)
	}
	delete(t.subsystems, nqn)
	t.inOrder = nil
	t.generation++
	s.removed = true
	t.changing[nqn] = true
	t.mu.Unlock()
	t.discoveryChanged()
	s.cancel()
	for _, c := range t.controllersOf(s) {
		c.fatal(ErrRemoved)
	}
	s.change.Lock()
	all := s.all()
	s.namespaces.Store(new([]*Namespace))
	s.change.Unlock()
	for _, ns := range all {
		ns.refuseAll()
	}
	return func() {
		for _, ns := range all {
			ns.remove()
		}
		s.close()
		t.disclaim(nqn)
	}, nil
}

// sortedSubsystems returns the NVM subsystems sorted by name; the slice is never modified. Called with mu held.
func (t *Target) sortedSubsystems() []*Subsystem {
	if t.inOrder == nil {
		t.inOrder = slices.Clip(slices.SortedFunc(maps.Values(t.subsystems),
			func(a, b *Subsystem) int { return strings.Compare(a.nqn, b.nqn) }))
	}
	return t.inOrder
}

func (t *Target) controllersOf(s *Subsystem) []*controller {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*controller
	for _, c := range t.controllers {
		if c.sub == s {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *controller) int { return int(a.id) - int(b.id) })
	return all
}

// NewQueue begins a queue on a new transport connection. The error is ErrLimit if too many are open, ErrMakingRoom if
// it is worth trying again at once, ErrDraining if the target is draining, and ErrClosed if it is closing. The
// transport must call Queue.Closed for each queue that it got.
func (t *Target) NewQueue(c Conn) (*Queue, error) {
	q := &Queue{t: t, conn: c, attr: c.Attr()}
	q.seen.Store(t.Now())
	leaves, err := t.begin(q)
	if leaves != nil {
		leaves.giveWay()
	}
	if err != nil {
		return nil, err
	}
	return q, nil
}

// begin enters a queue in the table, and returns the queue whose connection has to end to make room for it.
func (t *Target) begin(q *Queue) (leaves *Queue, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, ErrClosed
	case t.draining:
		return nil, ErrDraining
	}
	if leaves, err = t.arrive(q); err != nil {
		return leaves, err
	}
	q.shard = t.nextShard % nsShards
	t.nextShard++
	t.totals(q.attr.Transport).connects++
	q.timer = time.AfterFunc(t.limits.ConnectTimeout, q.connectTimeout)
	return leaves, nil
}

// totals returns the counters of a transport. Called with mu held.
func (t *Target) totals(tt nvme.TransportType) *transportTotals {
	n := t.transports[tt]
	if n == nil {
		n = new(transportTotals)
		t.transports[tt] = n
	}
	return n
}

// forget drops a queue whose connection is gone.
func (t *Target) forget(q *Queue, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.queues, q)
	t.left(q)
	n := t.totals(q.attr.Transport)
	n.disconnects++
	if failed && q.sq.Load() != 0 { // otherwise no host was lost: something probed whether the port is open
		n.failures++
	}
	q.io.addTo(&n.retired)
	if t.closed && len(t.queues) == 0 {
		close(t.idle)
	}
}

// Close takes no new connections, disconnects every host, and returns when all connections are gone, or with the error
// of ctx if some are left; it may be called again then. Volumes stay open for their owners to close, except those of
// namespaces that hosts created, which are closed. Listeners may be closed before it or after it.
func (t *Target) Close(ctx context.Context) error {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		if len(t.queues) == 0 {
			close(t.idle)
		}
	}
	queues := slices.Collect(maps.Keys(t.queues))
	for _, s := range t.subsystems {
		s.cancel() // before volumes can go: when ctx ends, their owner may close them
	}
	t.mu.Unlock()
	for _, q := range queues {
		q.disconnect(ErrClosed)
	}
	select {
	case <-t.idle:
	case <-ctx.Done():
		if n := t.connections(); n > 0 {
			return fmt.Errorf("target: closing: connections that are left: %d: %w", n, context.Cause(ctx))
		}
	}
	t.closeSubsystems()
	return nil
}

// closeSubsystems ends the background work of subsystems.
func (t *Target) closeSubsystems() {
	t.mu.Lock()
	all := t.sortedSubsystems()
	t.mu.Unlock()
	for _, s := range all {
		s.close()
	}
}

func (t *Target) connections() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queues)
}
