package metrics

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/internal/version"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// pageHTML is the status page: it requests status.json every second, and shows what changed.
//
//go:embed page.html
var pageHTML []byte

// pagePolicy lets the page run its own script and talk to its own server, and nothing else.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"

func servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy)
	_, _ = w.Write(pageHTML)
}

// pageStatus is status.json. Counters only increase; the page computes rates from them.
type pageStatus struct {
	Program string     `json:"program"`
	Host    bool       `json:"host"` // the program has no target
	Version string     `json:"version"`
	Problem string     `json:"problem"` // why it isn't ready
	Seconds float64    `json:"seconds"` // since the Set was made; setting the clock doesn't change it
	IO      pageIO     `json:"io"`
	Bounds  []float64  `json:"bounds"` // of the latency buckets, in seconds; the last bucket has none
	Packets pagePacket `json:"packets"`
	Volumes []pageRow  `json:"volumes"`
	Peers   []pageRow  `json:"peers"` // hosts of a target, or controllers of a host
	More    int        `json:"more"`  // how many peers were left out
}

type pageIO struct {
	Read     pageOp `json:"read"`
	Write    pageOp `json:"write"`
	Trim     pageOp `json:"trim,omitzero"` // only with a load generator
	Errors   uint64 `json:"errors"`
	InFlight int    `json:"in_flight"`
}

type pageOp struct {
	Ops     uint64   `json:"ops"`
	Bytes   uint64   `json:"bytes"`
	Seconds float64  `json:"seconds"`
	Buckets []uint64 `json:"buckets,omitempty"`
}

type pagePacket struct {
	Sent  uint64 `json:"sent"`
	Again uint64 `json:"again"`
}

// pageRow is a volume or a peer.
type pageRow struct {
	Key    string  `json:"key"` // unique
	Name   string  `json:"name"`
	Detail string  `json:"detail"`
	Size   uint64  `json:"size,omitempty"`
	Age    float64 `json:"age,omitempty"` // seconds; only of a host
	Queues int     `json:"queues,omitempty"`
	IO     pageIO  `json:"io"`
}

// maxPeers is how many peers a page shows: those that have moved the most data.
const maxPeers = 100

// status returns what the page shows now.
func (s *Set) status() *pageStatus {
	s.mu.Lock()
	targets, controllers, rnics, benches := values(s.targets), values(s.controllers), values(s.rnics), values(s.benches)
	subsystems := values(s.subsystems)
	s.mu.Unlock()
	st := &pageStatus{
		Program: s.Program, Host: len(targets) == 0, Version: version.Version, Seconds: time.Since(s.made).Seconds(),
		Volumes: []pageRow{}, Peers: []pageRow{},
	}
	if err := s.Ready(); err != nil {
		st.Problem = err.Error()
	}
	for i := range target.LatencyBuckets - 1 {
		st.Bounds = append(st.Bounds, target.LatencyBound(i).Seconds())
	}
	for _, t := range targets {
		snap := t.Snapshot()
		st.addTarget(&snap)
	}
	if st.Host {
		for _, c := range controllers {
			st.IO.Errors += c.Errors()
		}
		for _, sub := range subsystems {
			st.IO.Errors += sub.Errors() // those of controllers that are gone, too
			controllers = append(controllers, sub.Controllers()...)
		}
		st.addControllers(controllers)
	}
	for _, read := range benches {
		b := read()
		st.addBench(&b, len(subsystems) > 0)
	}
	for _, n := range rnics {
		counters := n.nic.Device().Counters()
		st.Packets.Sent += counters[roce.SentPackets]
		st.Packets.Again += counters[roce.Retransmitted]
	}
	st.limitPeers()
	return st
}

func opOf(s *target.OpStats) pageOp {
	return pageOp{Ops: s.Ops, Bytes: s.Bytes, Seconds: seconds(s.Nanos)}
}

func ioOf(s *target.IOStats, inFlight int) pageIO {
	io := pageIO{Read: opOf(&s.Read), Write: opOf(&s.Write), InFlight: inFlight}
	for _, n := range s.Errors {
		io.Errors += n
	}
	return io
}

func (st *pageStatus) addTarget(snap *target.Snapshot) {
	var io target.IOStats
	inFlight := 0
	for i := range snap.Transports {
		io.Add(&snap.Transports[i].IO)
	}
	for i := range snap.Subsystems {
		sub := &snap.Subsystems[i]
		for j := range sub.Namespaces {
			n := &sub.Namespaces[j]
			inFlight += n.Users
			st.Volumes = append(st.Volumes, pageRow{
				Key: sub.NQN + "/" + strconv.FormatUint(uint64(n.NSID), 10), Name: strings.TrimSpace(n.Kind + " " + text(n.Path)),
				Detail: text(sub.NQN), Size: n.Size, IO: ioOf(&n.IO, n.Users),
			})
		}
		for j := range sub.Controllers {
			st.addHost(sub.NQN, &sub.Controllers[j])
		}
	}
	st.IO = ioOf(&io, inFlight)
	st.IO.Read.Buckets, st.IO.Write.Buckets = io.Read.Latency[:], io.Write.Latency[:]
}

func (st *pageStatus) addHost(nqn string, c *target.ControllerStats) {
	v := controllerView{c: c}
	v.fill(nqn)
	st.Peers = append(st.Peers, pageRow{
		Key: string(v.id), Name: text(c.HostNQN), Detail: c.Transport.String() + " " + c.Remote.Addr().String(),
		Age: time.Since(c.Since).Seconds(), Queues: len(c.Queues), IO: ioOf(&v.io, v.inFlight),
	})
}

func (st *pageStatus) addControllers(all []*host.Controller) {
	for _, c := range all {
		if c.Err() != nil {
			continue
		}
		cfg := c.Config()
		row := pageRow{
			Key: cfg.SubNQN + cfg.Remote.String() + "/" + strconv.Itoa(int(c.CNTLID())), Name: text(cfg.SubNQN),
			Detail: cfg.Transport.Type().String() + " " + cfg.Remote.String(), Queues: 1 + len(c.Queues()),
		}
		for _, q := range append(c.Queues(), c.Admin()) {
			n := q.Counters()
			row.IO.Read.Bytes += n.BytesRead.Load()
			row.IO.Write.Bytes += n.BytesWritten.Load()
			row.IO.Errors += n.Errors()
			if q != c.Admin() {
				completed := n.Completed.Load() // first: later there may be more of them than were submitted
				row.IO.InFlight += int(n.Submitted.Load() - completed)
			}
		}
		st.IO.Read.Bytes += row.IO.Read.Bytes
		st.IO.Write.Bytes += row.IO.Write.Bytes
		st.IO.InFlight += row.IO.InFlight
		st.Peers = append(st.Peers, row)
	}
}

// addBench adds what a load generator measured. The bytes of reads and writes are those of the controllers, whose
// counters are current, except if controllers come and go with their paths.
func (st *pageStatus) addBench(b *Bench, paths bool) {
	for o, to := range map[*target.OpStats]*pageOp{&b.Read: &st.IO.Read, &b.Write: &st.IO.Write, &b.Trim: &st.IO.Trim} {
		to.Ops, to.Seconds, to.Buckets = o.Ops, seconds(o.Nanos), o.Latency[:]
	}
	st.IO.Trim.Bytes = b.Trim.Bytes
	if paths {
		st.IO.Read.Bytes, st.IO.Write.Bytes = b.Read.Bytes, b.Write.Bytes
	}
}

// limitPeers leaves out the peers that have moved the least data.
func (st *pageStatus) limitPeers() {
	moved := func(r *pageRow) uint64 { return r.IO.Read.Bytes + r.IO.Write.Bytes }
	slices.SortStableFunc(st.Peers, func(a, b pageRow) int { return cmp.Compare(moved(&b), moved(&a)) })
	if n := len(st.Peers) - maxPeers; n > 0 {
		st.Peers, st.More = st.Peers[:maxPeers], n
	}
}

func (s *Set) serveStatus(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(s.status())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body) // the page may have gone
}
