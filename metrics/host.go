package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// What a host counts for each queue of each controller. The labels before the last two identify
// the controller.
var (
	hostUp    = gauge("host_controller_up", "1 while the controller is connected.", "subsystem", "transport", "cntlid")
	hostBytes = counter("host_bytes_total", "Bytes of data that commands have moved.", "subsystem", "transport", "cntlid", "queue", "op")
	hostErrs  = counter("host_command_errors_total", "Responses with an error, by status code type.",
		"subsystem", "transport", "cntlid", "queue", "type")
	hostQueueRows = []row[*host.QueueCounters]{
		{counter("host_commands_submitted_total", "Commands given to the transport.", "subsystem", "transport", "cntlid", "queue"),
			func(c *host.QueueCounters) float64 { return float64(c.Submitted.Load()) }},
		{counter("host_commands_completed_total", "Responses received.", "subsystem", "transport", "cntlid", "queue"),
			func(c *host.QueueCounters) float64 { return float64(c.Completed.Load()) }},
		{counter("host_commands_waited_total", "Commands that found their queue full and waited.", "subsystem", "transport", "cntlid", "queue"),
			func(c *host.QueueCounters) float64 { return float64(c.Waited.Load()) }},
		{counter("host_commands_cut_total", "Commands that ended without a response.", "subsystem", "transport", "cntlid", "queue"),
			func(c *host.QueueCounters) float64 { return float64(c.Cut.Load()) }},
		{counter("host_command_timeouts_total", "Commands that were not answered in time.", "subsystem", "transport", "cntlid", "queue"),
			func(c *host.QueueCounters) float64 { return float64(c.Timeouts.Load()) }},
	}
	hostRows = []row[*host.Counters]{
		{counter("host_keep_alives_total", "Keep Alive commands that succeeded.", "subsystem", "transport", "cntlid"),
			func(c *host.Counters) float64 { return float64(c.KeepAlives.Load()) }},
		{counter("host_keep_alive_failures_total", "Keep Alive commands that failed.", "subsystem", "transport", "cntlid"),
			func(c *host.Counters) float64 { return float64(c.KeepAliveFailures.Load()) }},
		{counter("host_async_events_total", "Asynchronous events.", "subsystem", "transport", "cntlid"),
			func(c *host.Counters) float64 { return float64(c.AsyncEvents.Load()) }},
		{counter("host_aborts_total", "Abort commands sent.", "subsystem", "transport", "cntlid"),
			func(c *host.Counters) float64 { return float64(c.Aborts.Load()) }},
	}
)

// collectHost shows, of several controllers with the same labels, only the last: the others are
// gone.
func collectHost(ch chan<- prometheus.Metric, cs []*host.Controller) {
	type name struct{ subsystem, transport, cntlid string }
	last := map[name]*host.Controller{}
	for _, c := range cs {
		cfg := c.Config()
		last[name{text(cfg.SubNQN), cfg.Transport.Type().String(), strconv.Itoa(int(c.CNTLID()))}] = c
	}
	for n, c := range last {
		send(ch, hostUp, flag(c.Err() == nil), n.subsystem, n.transport, n.cntlid)
		for _, r := range hostRows {
			send(ch, r.metric, r.read(c.Counters()), n.subsystem, n.transport, n.cntlid)
		}
		collectQueue(ch, c.Admin(), n.subsystem, n.transport, n.cntlid)
		for _, q := range c.Queues() {
			collectQueue(ch, q, n.subsystem, n.transport, n.cntlid)
		}
	}
}

func collectQueue(ch chan<- prometheus.Metric, q *host.Queue, of ...string) {
	c := q.Counters()
	of = append(of, strconv.Itoa(int(q.ID())))
	with := func(l string) []string { return append(of[:len(of):len(of)], l) }
	for _, r := range hostQueueRows {
		send(ch, r.metric, r.read(c), of...)
	}
	send(ch, hostBytes, c.BytesRead.Load(), with("read")...)
	send(ch, hostBytes, c.BytesWritten.Load(), with("write")...)
	send(ch, hostErrs, c.GenericErrors.Load(), with("generic")...)
	send(ch, hostErrs, c.CommandErrors.Load(), with("command_specific")...)
	send(ch, hostErrs, c.MediaErrors.Load(), with("media")...)
	send(ch, hostErrs, c.PathErrors.Load(), with("path")...)
	send(ch, hostErrs, c.OtherErrors.Load(), with("other")...)
}
