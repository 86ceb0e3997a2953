package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/fault"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/softrnic"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// rnicCounters are the device's counters, with their names.
var rnicCounters = func() (m [roce.NumCounters]metric) {
	for c := range roce.NumCounters {
		help := "RNIC: " + c.Help() + "."
		m[c] = counter("rnic_"+c.String()+"_total", help, "device")
	}
	return m
}()

// What the RNIC's socket counts.
var socketRows = []row[softrnic.SocketStats]{
	{counter("udp_received_datagrams_total", "Datagrams received.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.RxDatagrams) }},
	{counter("udp_received_bytes_total", "Bytes of datagrams received.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.RxBytes) }},
	{counter("udp_received_shared_bytes_total", "Bytes of those received that came through memory shared with a program of this host.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.RxShared) }},
	{counter("udp_receive_calls_total", "System calls that received datagrams.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.RxSyscalls) }},
	{counter("udp_empty_receive_calls_total", "System calls that looked for datagrams and found none.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.RxEmpty) }},
	{counter("udp_receive_overruns_total", "Datagrams lost because the socket's receive buffer was full.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.RxKernelDrops) }},
	{counter("udp_receive_truncated_total", "Receives cut short, and so discarded.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.RxTruncated) }},
	{counter("udp_sent_datagrams_total", "Datagrams sent.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.TxDatagrams) }},
	{counter("udp_sent_bytes_total", "Bytes of datagrams sent.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.TxBytes) }},
	{counter("udp_sent_shared_bytes_total", "Bytes of those sent that went through memory shared with a program of this host.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.TxShared) }},
	{counter("udp_send_calls_total", "System calls that sent datagrams.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.TxSyscalls) }},
	{counter("udp_send_waits_total", "Times that the socket was full and sending waited.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.TxWaits) }},
	{counter("udp_send_drops_total", "Datagrams that the system refused, or shared memory had no room for.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.TxDrops) }},
	{counter("udp_segmentation_refusals_total", "Times that the system or a route refused to cut what was sent at once into datagrams: it takes one at a time from then on, which costs more.", "device"),
		func(c softrnic.SocketStats) float64 { return float64(c.TxRefusals) }},
}

// Faults that are injected into packets.
var faultPackets = counter("fault_packets_total", "Packets that met an injected fault.", "device", "fault")

func collectFaults(ch chan<- prometheus.Metric, name string, c *fault.Counters) {
	for kind, n := range map[string]*atomic.Uint64{
		"lost": &c.Lost, "cut": &c.Cut, "duplicated": &c.Duplicated,
		"corrupted": &c.Corrupted, "reordered": &c.Reordered, "overflowed": &c.Overflowed,
	} {
		send(ch, faultPackets, n.Load(), name, kind)
	}
}

// What the RNIC's connection manager counts.
var (
	cmMessages = counter("cm_messages_total", "Messages of connection management, retransmissions too.", "device", "direction", "message")
	cmRejects  = counter("cm_rejects_total", "Connections rejected, by reason (IBTA table 109).", "device", "direction", "reason")
	cmRows     = []row[*cm.Counters]{
		{counter("cm_retransmits_total", "Messages sent again.", "device"),
			func(c *cm.Counters) float64 { return float64(c.Retransmits.Load()) }},
		{counter("cm_duplicates_total", "Messages received again.", "device"),
			func(c *cm.Counters) float64 { return float64(c.Duplicates.Load()) }},
		{counter("cm_dropped_total", "Messages for no connection, or not for its state.", "device"),
			func(c *cm.Counters) float64 { return float64(c.Dropped.Load()) }},
		{counter("cm_malformed_total", "Datagrams that are no message.", "device"),
			func(c *cm.Counters) float64 { return float64(c.Malformed.Load()) }},
		{counter("cm_overruns_total", "Datagrams lost because too many waited.", "device"),
			func(c *cm.Counters) float64 { return float64(c.Overruns.Load()) }},
		{counter("cm_unanswered_total", "Messages of strangers that got no answer, because there were too many.", "device"),
			func(c *cm.Counters) float64 { return float64(c.Unanswered.Load()) }},
		{counter("cm_send_errors_total", "Datagrams that could not be sent.", "device"),
			func(c *cm.Counters) float64 { return float64(c.SendErrors.Load()) }},
		{counter("cm_connects_total", "Connections made to a peer.", "device"),
			func(c *cm.Counters) float64 { return float64(c.Connects.Load()) }},
		{counter("cm_accepts_total", "Connections taken from a peer.", "device"),
			func(c *cm.Counters) float64 { return float64(c.Accepts.Load()) }},
		{counter("cm_disconnects_total", "Connections that ended.", "device"),
			func(c *cm.Counters) float64 { return float64(c.Disconnects.Load()) }},
		{counter("cm_unreachable_total", "Attempts that the peer left unanswered.", "device"),
			func(c *cm.Counters) float64 { return float64(c.Unreachable.Load()) }},
		{counter("cm_stale_connections_total", "Connections ended because their peer has begun anew.", "device"),
			func(c *cm.Counters) float64 { return float64(c.StaleEvicted.Load()) }},
		{counter("cm_gave_way_total", "Half-open connections ended because others needed their places.", "device"),
			func(c *cm.Counters) float64 { return float64(c.GaveWay.Load()) }},
		{gauge("cm_connections", "Connections in the table now, those in TIMEWAIT too.", "device"),
			func(c *cm.Counters) float64 { return float64(c.Connections.Load()) }},
		{gauge("cm_half_open_connections", "Connections taken and not confirmed yet.", "device"),
			func(c *cm.Counters) float64 { return float64(c.HalfOpen.Load()) }},
	}
)

func collectRNIC(ch chan<- prometheus.Metric, name string, nic *softrnic.RNIC) {
	for i, n := range nic.Device().Counters() {
		send(ch, rnicCounters[i], n, name)
	}
	stats := nic.SocketStats()
	for _, r := range socketRows {
		send(ch, r.metric, r.read(stats), name)
	}
	if f := nic.Faults(); f != nil {
		collectFaults(ch, name, f.Faults())
	}
	collectCM(ch, name, nic.Counters())
}

func collectCM(ch chan<- prometheus.Metric, name string, c *cm.Counters) {
	for _, r := range cmRows {
		send(ch, r.metric, r.read(c), name)
	}
	for a := mad.AttrREQ; c.Sent.Of(a) != nil; a++ {
		send(ch, cmMessages, c.Sent.Of(a).Load(), name, "sent", a.String())
		send(ch, cmMessages, c.Received.Of(a).Load(), name, "received", a.String())
	}
	for r, label := range rejectReasons {
		send(ch, cmRejects, c.RejectsSent.Of(r).Load(), name, "sent", label)
		send(ch, cmRejects, c.RejectsReceived.Of(r).Load(), name, "received", label)
	}
	collectOtherRejects(ch, name, "sent", &c.RejectsSent)
	collectOtherRejects(ch, name, "received", &c.RejectsReceived)
}

// rejectReasons are the reasons with a label; all others are counted together.
var rejectReasons = map[verbs.RejectReason]string{
	verbs.RejectNoQP:             "no_qp",
	verbs.RejectNoResources:      "no_resources",
	verbs.RejectTimeout:          "timeout",
	verbs.RejectUnsupported:      "unsupported",
	verbs.RejectInvalidServiceID: "invalid_service_id",
	verbs.RejectStale:            "stale",
	verbs.RejectInvalidGID:       "invalid_gid",
	verbs.RejectInvalidMTU:       "invalid_mtu",
	verbs.RejectConsumer:         "consumer",
}

func collectOtherRejects(ch chan<- prometheus.Metric, name, direction string, c *cm.ReasonCounters) {
	var other uint64
	for r := range verbs.RejectReason(len(c)) {
		if rejectReasons[r] == "" {
			other += c.Of(r).Load()
		}
	}
	send(ch, cmRejects, other, name, direction, "other")
}
