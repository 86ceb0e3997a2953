package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// ioMetrics are the metrics of commands, which transports and namespaces have in common.
type ioMetrics struct {
	commands, bytes, errors, sampled, stages metric

	latency *prometheus.Desc
}

// newIOMetrics returns the metrics of what, with the labels of.
func newIOMetrics(name, what string, of ...string) ioMetrics {
	with := func(l string) []string { return append(of[:len(of):len(of)], l) }
	return ioMetrics{
		commands: counter(name+"_commands_total", "Commands "+what+" has completed, in error too.", with("op")...),
		bytes:    counter(name+"_bytes_total", "Bytes of data of the commands "+what+" has completed without error.", with("op")...),
		errors: counter(name+"_command_errors_total",
			"Commands "+what+" has completed in error, by status code type.", with("type")...),
		sampled: counter(name+"_sampled_commands_total", "Commands whose stages were measured.", of...),
		stages:  counter(name+"_sampled_seconds_total", stageHelp, with("stage")...),
		latency: newDesc(name+"_command_duration_seconds",
			"Time from the arrival of a command to its response.", with("op")),
	}
}

// errorTypes names the defined status code types (NVMe Base 2.0, figure 95).
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
		ch <- histogram(m.latency, x.s, labels...)
	}
	for i, name := range errorTypes {
		if name != "" {
			send(ch, m.errors, s.Errors[i], with(name)...)
		}
	}
	send(ch, m.sampled, s.Stages.Sampled, of...)
	for st := range target.NumStages {
		send(ch, m.stages, seconds(s.Stages.Nanos[st]), with(st.String())...)
	}
}
