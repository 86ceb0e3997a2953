package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp/pdu"
)

// What the NVMe/TCP binding counts.
var (
	tcpPDUs       = counter("tcp_pdus_total", "NVMe/TCP PDUs.", "role", "direction", "type")
	tcpDirections = []row[*tcp.DirectionCounters]{
		{counter("tcp_bytes_total", "Bytes on NVMe/TCP connections.", "role", "direction"),
			func(c *tcp.DirectionCounters) float64 { return float64(c.Bytes.Load()) }},
		{counter("tcp_data_bytes_total", "Bytes of data in NVMe/TCP PDUs.", "role", "direction"),
			func(c *tcp.DirectionCounters) float64 { return float64(c.Data.Load()) }},
		{counter("tcp_direct_bytes_total", "Bytes of data that the kernel put at their place.", "role", "direction"),
			func(c *tcp.DirectionCounters) float64 { return float64(c.Direct.Load()) }},
		{counter("tcp_calls_total", "System calls that sent or received something.", "role", "direction"),
			func(c *tcp.DirectionCounters) float64 { return float64(c.Calls.Load()) }},
		{counter("tcp_blocked_total", "System calls that met a full socket when sending, an empty one when receiving.", "role", "direction"),
			func(c *tcp.DirectionCounters) float64 { return float64(c.Blocked.Load()) }},
	}
	tcpRows = []row[*tcp.Counters]{
		{gauge("tcp_connections", "NVMe/TCP connections now.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.Connections.Load()) }},
		{counter("tcp_accepted_connections_total", "NVMe/TCP connections made.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.Accepted.Load()) }},
		{counter("tcp_refused_connections_total", "NVMe/TCP connections closed for a limit, or before they were ready.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.Rejected.Load()) }},
		{counter("tcp_header_digest_errors_total", "PDUs with a wrong header digest.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.HeaderDigestErrors.Load()) }},
		{counter("tcp_data_digest_errors_total", "PDUs with a wrong data digest.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.DataDigestErrors.Load()) }},
		{counter("tcp_protocol_errors_total", "PDUs that broke the rules, those with a wrong header digest too.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.ProtocolErrors.Load()) }},
		{counter("tcp_short_data_total", "Reads that succeeded without all of their data.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.ShortData.Load()) }},
		{counter("tcp_memory_waits_total", "Commands that had to wait for data memory.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.MemoryWaits.Load()) }},
		{counter("tcp_success_flags_total", "Responses that a SUCCESS flag stood for.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.Successes.Load()) }},
	}
)

func collectTCP(ch chan<- prometheus.Metric, all []binding[*tcp.Counters]) {
	for role, cs := range byRole(all) {
		for _, r := range tcpRows {
			send(ch, r.metric, sum(cs, r.read), string(role))
		}
		var in, out []*tcp.DirectionCounters
		for _, c := range cs {
			in, out = append(in, &c.In), append(out, &c.Out)
		}
		collectDirection(ch, string(role), "received", in)
		collectDirection(ch, string(role), "sent", out)
	}
}

func collectDirection(ch chan<- prometheus.Metric, role, direction string, cs []*tcp.DirectionCounters) {
	for _, r := range tcpDirections {
		send(ch, r.metric, sum(cs, r.read), role, direction)
	}
	for _, t := range pdu.Types {
		n := sum(cs, func(c *tcp.DirectionCounters) float64 { return float64(c.PDUs[t].Load()) })
		send(ch, tcpPDUs, n, role, direction, t.String())
	}
}
