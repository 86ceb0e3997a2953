package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// ioMetrics are the figures of commands, which transports, namespaces and controllers share.
type ioMetrics struct {
	commands, bytes, seconds, errors metric
	latency                          *prometheus.Desc // nil for none
}

// newIOMetrics names the metrics of what, whose labels are of; histogram says that latencies
// are shown in buckets rather than by their sum alone.
func newIOMetrics(name, what string, histogram bool, of ...string) ioMetrics {
	with := func(l string) []string { return append(of[:len(of):len(of)], l) }
	m := ioMetrics{
		commands: counter(name+"_commands_total", "Commands "+what+" has completed, in error too.", with("op")...),
		bytes:    counter(name+"_bytes_total", "Bytes of data of the commands "+what+" has completed.", with("op")...),
		seconds: counter(name+"_command_seconds_total",
			"Time from the arrival of a command to its response, added up.", with("op")...),
		errors: counter(name+"_command_errors_total",
			"Commands "+what+" has completed in error, by status code type.", with("type")...),
	}
	if histogram {
		m.latency = newDesc(name+"_command_duration_seconds",
			"Time from the arrival of a command to its response.", with("op"))
	}
	return m
}

// errorTypes name the status code types (NVMe Base 2.0, figure 95) that there are.
var errorTypes = [8]string{0: "generic", 1: "command_specific", 2: "media", 3: "path", 7: "vendor"}

func (m *ioMetrics) collect(ch chan<- prometheus.Metric, s *target.IOStats, of ...string) {
	with := func(l string) []string { return append(of[:len(of):len(of)], l) }
	for _, x := range []struct {
		op string
		s  *target.OpStats
	}{{"read", &s.Read}, {"write", &s.Write}, {"other", &s.Other}} {
		labels := with(x.op)
		send(ch, m.commands, x.s.Ops, labels...)
		if x.op != "other" {
			send(ch, m.bytes, x.s.Bytes, labels...)
		}
		if m.latency == nil {
			send(ch, m.seconds, seconds(x.s.Nanos), labels...)
		} else {
			ch <- histogram(m.latency, x.s.Latency[:], x.s.Nanos, target.LatencyBound, labels...)
		}
	}
	for i, name := range errorTypes {
		if name != "" {
			send(ch, m.errors, s.Errors[i], with(name)...)
		}
	}
}
