package target

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// Snapshot is the state of the target's counters at one moment. The number of its entries is bounded: by the
// configuration for subsystems and namespaces, by Limits for controllers and queues.
type Snapshot struct {
	Connections int // queues, connected or not yet
	Controllers int
	Draining    bool             // since Drain, until Resume
	Transports  []TransportStats // by type
	Subsystems  []SubsystemStats // by NQN, the discovery subsystem last
	ANA         []ANAStats       // for each port, the groups that have namespaces
}

// ANAStats is the state of an ANA group at a port.
type ANAStats struct {
	Port      uint16
	Transport nvme.TransportType // of the port
	Addr      netip.AddrPort     // likewise
	Group     uint32
	State     nvme.ANAState
}

// TransportStats count the queues over one type of transport, including those that are gone.
type TransportStats struct {
	Transport         nvme.TransportType
	Queues            int    // now
	InFlight          int    // commands, now, except event requests that wait
	Connects          uint64 // connections accepted
	Disconnects       uint64 // connections gone
	Failures          uint64 // those of them that had been let in by Connect and were lost rather than closed
	LostHosts         uint64 // controllers whose host was lost, or left without a shutdown
	RefusedConnects   uint64 // Connect commands that failed
	KeepAliveTimeouts uint64 // controllers that ended because their host was silent
	Authentications   uint64 // of hosts, each on one queue, that succeeded
	AuthFailures      uint64 // likewise, that failed
	GaveWay           uint64 // connections that had to make room for others
	IO                IOStats
}

// SubsystemStats count one subsystem.
type SubsystemStats struct {
	NQN         string
	Namespaces  []NamespaceStats  // by NSID
	Controllers []ControllerStats // by CNTLID
}

// NamespaceStats count one namespace since it was added.
type NamespaceStats struct {
	NSID        uint32
	Kind, Path  string // of the volume
	Size        uint64 // bytes
	ReadOnly    bool
	Users       int    // requests that use it now
	MediaErrors uint64 // errors that hosts saw, of the volume and of marked blocks
	Discards    uint64 // ranges that the volume was told to discard
	WriteZeroes uint64 // ranges that the volume was told to fill with zeroes

	Uncorrectable uint64        // blocks that hosts marked uncorrectable, now
	ANAGroup      uint32        // Snapshot.ANA has its states
	Reservation   nvme.ResvType // held now
	Registrants   int           // hosts that are registered
	IO            IOStats
}

// ControllerStats count one controller.
type ControllerStats struct {
	CNTLID    uint16
	HostNQN   string
	Transport nvme.TransportType
	Remote    netip.AddrPort
	Since     time.Time
	KeepAlive time.Duration // timeout; 0 for none
	Queues    []QueueStats  // current ones, by QID, the admin queue first
	Retired   IOStats       // of its I/O queues that are gone
	Auth      *AuthStats    // of the admin queue; nil: the host was not authenticated
}

// QueueStats count one queue.
type QueueStats struct {
	QID      uint16
	Depth    int // entries
	InFlight int // commands now, except event requests that wait
	IO       IOStats
}

// Snapshot returns the current value of every counter.
func (t *Target) Snapshot() Snapshot {
	t.mu.Lock()
	s := Snapshot{Connections: len(t.queues), Controllers: len(t.controllers), Draining: t.draining}
	s.Transports = t.transportStats()
	subs := append(t.sortedSubsystems(), t.discovery)
	s.ANA = t.anaStats(subs)
	t.mu.Unlock()
	for _, sub := range subs {
		s.Subsystems = append(s.Subsystems, sub.snapshot())
	}
	return s
}

// anaStats is called with mu held.
func (t *Target) anaStats(subs []*Subsystem) (all []ANAStats) {
	var used [MaxANAGroup + 1]bool
	for _, s := range subs {
		for _, ns := range s.all() {
			used[ns.anaGroup] = true
		}
	}
	for i := range t.ports {
		for g := range uint32(len(used)) {
			if used[g] {
				p := &t.ports[i]
				all = append(all, ANAStats{Port: p.ID, Transport: p.Transport, Addr: p.Addr, Group: g, State: p.ana.state(g)})
			}
		}
	}
	return all
}

// transportStats is called with mu held.
func (t *Target) transportStats() []TransportStats {
	by := map[nvme.TransportType]*TransportStats{}
	for tt, n := range t.transports {
		by[tt] = &TransportStats{
			Transport: tt,
			Connects:  n.connects, Disconnects: n.disconnects, Failures: n.failures, LostHosts: n.lostHosts,
			RefusedConnects: n.refusedConnects, KeepAliveTimeouts: n.keepAliveTimeouts,
			Authentications: n.authentications, AuthFailures: n.authFailures, GaveWay: n.gaveWay,
			IO: n.retired,
		}
	}
	for q := range t.queues {
		s := by[q.attr.Transport]
		s.Queues++
		if q.connected() {
			q.ctrl.mu.Lock()
			s.InFlight += q.busy()
			q.ctrl.mu.Unlock()
		} else {
			s.InFlight += q.inFlight()
		}
		q.io.addTo(&s.IO)
	}
	all := make([]TransportStats, 0, len(by))
	for _, s := range by {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b TransportStats) int { return int(a.Transport) - int(b.Transport) })
	return all
}

func (s *Subsystem) snapshot() SubsystemStats {
	out := SubsystemStats{NQN: s.nqn}
	for _, ns := range s.all() {
		resv := ns.resv.now.Load()
		out.Namespaces = append(out.Namespaces, NamespaceStats{
			NSID: ns.nsid, Kind: ns.info.Kind, Path: ns.info.Path,
			Size: ns.blocks.Load() << ns.shift, ReadOnly: ns.protected.Load(),
			Users: int(ns.users()), MediaErrors: ns.mediaErrors.Load(), IO: ns.stats(),
			Discards: ns.discards.Load(), WriteZeroes: ns.zeroes.Load(),
			Uncorrectable: ns.bad.count(), ANAGroup: ns.anaGroup,
			Reservation: resv.kind, Registrants: len(resv.registrants),
		})
	}
	controllers := s.t.controllersOf(s)
	out.Controllers = make([]ControllerStats, len(controllers))
	for i, c := range controllers {
		c.snapshot(&out.Controllers[i])
	}
	return out
}

func (c *controller) snapshot(out *ControllerStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*out = ControllerStats{
		CNTLID: c.id, HostNQN: c.hostNQN, Transport: c.attr.Transport, Remote: c.attr.Remote,
		Since: c.since, KeepAlive: c.kato,
		Queues: make([]QueueStats, 0, 1+len(c.queues)),
	}
	if c.retired != nil {
		out.Retired = *c.retired
	}
	if a := c.admin.auth.Load(); a != nil {
		out.Auth = a.last.Load()
	}
	ids := make([]uint16, 0, maxQueues)
	for qid := range c.queues {
		ids = append(ids, qid)
	}
	slices.Sort(ids)
	out.addQueue(c.admin, 0)
	for _, qid := range ids {
		out.addQueue(c.queues[qid], qid)
	}
}

// addQueue is called with controller.mu held.
func (c *ControllerStats) addQueue(q *Queue, qid uint16) {
	c.Queues = append(c.Queues, QueueStats{QID: qid, Depth: int(q.sq.Load() & sqSizeMask), InFlight: q.busy()})
	q.io.addTo(&c.Queues[len(c.Queues)-1].IO)
}
