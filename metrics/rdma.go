package metrics

import "github.com/nvme-anywhere/nvmeof/fabric/rdma"

// What the NVMe/RDMA binding counts.
var rdmaFigures = []figure[*rdma.Counters]{
	{gauge("rdma_connections", "NVMe/RDMA connections now.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.Connections.Load()) }},
	{counter("rdma_accepted_connections_total", "NVMe/RDMA connections accepted.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.Accepted.Load()) }},
	{counter("rdma_rejected_connections_total", "NVMe/RDMA connections rejected.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.Rejected.Load()) }},
	{counter("rdma_limited_connections_total", "NVMe/RDMA connections rejected for a limit on connections or on their memory.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.Limited.Load()) }},
	{counter("rdma_failed_connections_total", "NVMe/RDMA connections ended by an error.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.Failed.Load()) }},
	{counter("rdma_capsules_total", "Command capsules sent by the host, or received by the target.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.Capsules.Load()) }},
	{counter("rdma_in_capsule_total", "Command capsules that carried their data.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.InCapsule.Load()) }},
	{counter("rdma_reads_total", "RDMA READ work requests.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.Reads.Load()) }},
	{counter("rdma_writes_total", "RDMA WRITE work requests.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.Writes.Load()) }},
	{counter("rdma_remote_invalidates_total", "Responses that invalidated the host's key.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.Invalidates.Load()) }},
	{counter("rdma_local_invalidates_total", "Keys that the target left to the host to invalidate.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.LocalInvalidates.Load()) }},
	{counter("rdma_registrations_total", "Requests whose memory had to be registered for them.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.Registered.Load()) }},
	{counter("rdma_memory_waits_total", "Commands that had to wait for data memory.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.MemoryWaits.Load()) }},
	{counter("rdma_gave_way_total",
		"Connections of hosts that had proved nothing, ended because others needed the memory of their buffers.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.GaveWay.Load()) }},
	{counter("rdma_probes_total", "Silent hosts that were asked for a sign of life.", "role"), nil,
		func(s *rdma.Counters) float64 { return float64(s.Probes.Load()) }},
}
