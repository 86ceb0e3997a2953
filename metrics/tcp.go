package metrics

import (
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
		{counter("tcp_limited_connections_total", "NVMe/TCP connections closed for a limit on connections.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.Limited.Load()) }},
		{counter("tcp_header_digest_errors_total", "PDUs with a wrong header digest.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.HeaderDigestErrors.Load()) }},
		{counter("tcp_data_digest_errors_total", "PDUs with a wrong data digest.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.DataDigestErrors.Load()) }},
		{counter("tcp_protocol_errors_total", "PDUs that broke the rules, those with a wrong header digest too.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.ProtocolErrors.Load()) }},
		{counter("tcp_short_data_total", "Commands that succeeded without all of their data.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.ShortData.Load()) }},
		{counter("tcp_memory_waits_total", "Commands that had to wait for data memory.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.MemoryWaits.Load()) }},
		{counter("tcp_success_flags_total", "Responses that a SUCCESS flag stood for.", "role"),
			func(c *tcp.Counters) float64 { return float64(c.Successes.Load()) }},
	}
)

// tcpFigures are all of these metrics.
var tcpFigures = func() (all []figure[*tcp.Counters]) {
	for _, r := range tcpRows {
		all = append(all, figure[*tcp.Counters]{r.metric, nil, r.read})
	}
	all = append(all, directionFigures("received", func(c *tcp.Counters) *tcp.DirectionCounters { return &c.In })...)
	return append(all, directionFigures("sent", func(c *tcp.Counters) *tcp.DirectionCounters { return &c.Out })...)
}()

func directionFigures(direction string, of func(*tcp.Counters) *tcp.DirectionCounters) (all []figure[*tcp.Counters]) {
	for _, r := range tcpDirections {
		all = append(all, figure[*tcp.Counters]{r.metric, []string{direction},
			func(c *tcp.Counters) float64 { return r.read(of(c)) }})
	}
	for _, t := range pdu.Types {
		all = append(all, figure[*tcp.Counters]{tcpPDUs, []string{direction, t.String()},
			func(c *tcp.Counters) float64 { return float64(of(c).PDUs[t].Load()) }})
	}
	return all
}
