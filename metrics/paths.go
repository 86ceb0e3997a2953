package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

// What a host counts for each path to a subsystem.
var (
	pathUp       = gauge("host_path_up", "1 while the path is connected.", "subsystem", "path")
	pathUnderWay = gauge("host_path_requests_in_flight", "Requests that have been sent and not ended.", "subsystem", "path")
	pathAccess   = gauge("host_path_ana_state", "ANA state of a namespace by the path: 1 optimized, 2 non-optimized, 3 inaccessible, "+
		"4 persistent loss, 15 change; 0 where the path doesn't lead to it.", "subsystem", "path", "namespace")
	pathRows = []row[*multipath.PathCounters]{
		{counter("host_path_requests_total", "Requests that the path has ended.", "subsystem", "path"),
			func(c *multipath.PathCounters) float64 { return float64(c.Ended.Load()) }},
		{counter("host_path_retries_total", "Requests that the path ended and that were sent again.", "subsystem", "path"),
			func(c *multipath.PathCounters) float64 { return float64(c.Retried.Load()) }},
		{counter("host_path_connects_total", "Times that the path became live.", "subsystem", "path"),
			func(c *multipath.PathCounters) float64 { return float64(c.Connects.Load()) }},
		{counter("host_path_connect_failures_total", "Attempts to connect that failed.", "subsystem", "path"),
			func(c *multipath.PathCounters) float64 { return float64(c.Failures.Load()) }},
		{counter("host_path_losses_total", "Times that the path was lost.", "subsystem", "path"),
			func(c *multipath.PathCounters) float64 { return float64(c.Losses.Load()) }},
	}
	subWaiting = gauge("host_requests_waiting", "Requests that wait for a path.", "subsystem")
	subWaited  = counter("host_requests_waited_total", "Requests that have waited for a path.", "subsystem")
	subFailed  = counter("host_requests_unreachable_total",
		"Requests that ended because no path could take them, or each was lost with them.", "subsystem")
)

func collectPaths(ch chan<- prometheus.Metric, s *multipath.Subsystem) {
	name := text(s.SubNQN())
	send(ch, subWaiting, s.Waiting(), name)
	send(ch, subWaited, s.Counters().Waited.Load(), name)
	send(ch, subFailed, s.Counters().Failed.Load(), name)
	seen := map[string]bool{} // an endpoint that was given twice is shown once
	paths := s.Paths()
	for i := range paths {
		p := &paths[i]
		path := p.Name()
		if seen[path] {
			continue
		}
		seen[path] = true
		send(ch, pathUp, flag(p.State == multipath.Live), name, path)
		send(ch, pathUnderWay, p.UnderWay, name, path)
		for _, r := range pathRows {
			send(ch, r.metric, r.read(p.Counters), name, path)
		}
		for _, a := range p.Access {
			state := int(a.State)
			if a.Err != nil {
				state = 0
			}
			send(ch, pathAccess, state, name, path, strconv.FormatUint(uint64(a.NSID), 10))
		}
	}
}
