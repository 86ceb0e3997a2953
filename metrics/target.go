package metrics

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// What a target counts for each transport, including connections that are gone.
var (
	targetIO       = newIOMetrics("target", "the target", "transport")
	targetQueues   = gauge("target_queues", "Queues connected now.", "transport")
	targetInFlight = gauge("target_commands_in_flight", "Commands under way now.", "transport")
	targetANA      = gauge("target_ana_state",
		"State of an ANA group at an endpoint: 1 optimized, 2 non-optimized, 3 inaccessible, 4 persistent loss, 15 change.", "listen", "group")
	targetControllers = gauge("target_controllers", "Controllers now.")
	targetDraining    = gauge("target_draining", "1 while hosts are let go, and refused.")
	targetRows        = []row[*target.TransportStats]{
		{counter("target_connects_total", "Connections taken.", "transport"),
			func(s *target.TransportStats) float64 { return float64(s.Connects) }},
		{counter("target_disconnects_total", "Connections gone.", "transport"),
			func(s *target.TransportStats) float64 { return float64(s.Disconnects) }},
		{counter("target_connection_failures_total", "Connections of hosts that were lost rather than closed.", "transport"),
			func(s *target.TransportStats) float64 { return float64(s.Failures) }},
		{counter("target_lost_hosts_total", "Controllers whose host was lost, or went without shutting them down.", "transport"),
			func(s *target.TransportStats) float64 { return float64(s.LostHosts) }},
		{counter("target_refused_connects_total", "Connect commands that were refused.", "transport"),
			func(s *target.TransportStats) float64 { return float64(s.RefusedConnects) }},
		{counter("target_keep_alive_timeouts_total", "Controllers that ended because their host was silent.", "transport"),
			func(s *target.TransportStats) float64 { return float64(s.KeepAliveTimeouts) }},
		{counter("target_authentications_total",
			"Queues on which a host authenticated itself, and again each time that it did so anew.", "transport"),
			func(s *target.TransportStats) float64 { return float64(s.Authentications) }},
		{counter("target_authentication_failures_total", "Authentications that failed.", "transport"),
			func(s *target.TransportStats) float64 { return float64(s.AuthFailures) }},
		{counter("target_gave_way_total", "Connections of hosts that had proved nothing, ended because others needed their places.", "transport"),
			func(s *target.TransportStats) float64 { return float64(s.GaveWay) }},
	}
)

// What a target counts for each namespace.
var (
	namespaceIO       = newIOMetrics("namespace", "the namespace", "subsystem", "nsid")
	namespaceInfo     = gauge("namespace_info", "The volume of a namespace, with the value 1.", "subsystem", "nsid", "kind", "path")
	namespaceSize     = gauge("namespace_size_bytes", "Size of the namespace.", "subsystem", "nsid")
	namespaceReadOnly = gauge("namespace_read_only", "1 where the namespace is write protected.", "subsystem", "nsid")
	namespaceInFlight = gauge("namespace_requests_in_flight", "Commands that use the namespace now: they wait for memory, data or the volume, or are being answered.", "subsystem", "nsid")
	namespaceDiscards = counter("namespace_discarded_ranges_total", "Ranges that the volume was told to discard.", "subsystem", "nsid")
	namespaceZeroes   = counter("namespace_zeroed_ranges_total", "Ranges that the volume was told to fill with zeroes.", "subsystem", "nsid")
	namespaceBad      = gauge("namespace_uncorrectable_blocks", "Blocks that hosts marked with Write Uncorrectable.", "subsystem", "nsid")
	namespaceResv     = gauge("namespace_reservation_type",
		"Type of the reservation that is held, 1 to 6 as NVMe numbers them; 0 for none.", "subsystem", "nsid")
	namespaceResvRegs = gauge("namespace_registrants", "Hosts that are registered for reservations.", "subsystem", "nsid")
	namespaceMedia    = counter("namespace_media_errors_total", "Media errors that hosts saw: failures of the volume, and blocks that hosts had marked with Write Uncorrectable.", "subsystem", "nsid")
)

func collectTarget(ch chan<- prometheus.Metric, s *target.Snapshot) {
	send(ch, targetControllers, s.Controllers)
	send(ch, targetDraining, flag(s.Draining))
	for _, a := range s.ANA {
		// PORTID would not do: it depends on the order in which the ports were added.
		send(ch, targetANA, int(a.State), fmt.Sprintf("%s://%s", a.Transport, a.Addr), strconv.FormatUint(uint64(a.Group), 10))
	}
	for i := range s.Transports {
		x := &s.Transports[i]
		name := x.Transport.String()
		send(ch, targetQueues, x.Queues, name)
		send(ch, targetInFlight, x.InFlight, name)
		for _, r := range targetRows {
			send(ch, r.metric, r.read(x), name)
		}
		targetIO.collect(ch, &x.IO, name)
	}
	for i := range s.Subsystems {
		sub := &s.Subsystems[i]
		for j := range sub.Namespaces {
			collectNamespace(ch, text(sub.NQN), &sub.Namespaces[j])
		}
	}
}

func collectNamespace(ch chan<- prometheus.Metric, nqn string, ns *target.NamespaceStats) {
	nsid := strconv.FormatUint(uint64(ns.NSID), 10)
	send(ch, namespaceInfo, 1, nqn, nsid, ns.Kind, text(ns.Path))
	send(ch, namespaceSize, ns.Size, nqn, nsid)
	send(ch, namespaceReadOnly, flag(ns.ReadOnly), nqn, nsid)
	send(ch, namespaceInFlight, ns.Users, nqn, nsid)
	send(ch, namespaceMedia, ns.MediaErrors, nqn, nsid)
	send(ch, namespaceBad, ns.Uncorrectable, nqn, nsid)
	send(ch, namespaceResv, int(ns.Reservation), nqn, nsid)
	send(ch, namespaceResvRegs, ns.Registrants, nqn, nsid)
	send(ch, namespaceDiscards, ns.Discards, nqn, nsid)
	send(ch, namespaceZeroes, ns.WriteZeroes, nqn, nsid)
	namespaceIO.collect(ch, &ns.IO, nqn, nsid)
}
