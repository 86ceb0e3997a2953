package cm

import (
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// MessageCounters counts by message; index it with Of.
type MessageCounters [mad.AttrAPR - mad.AttrREQ + 1]atomic.Uint64

// Of returns the counter of a message; nil for an attribute outside the table.
func (c *MessageCounters) Of(a mad.AttributeID) *atomic.Uint64 {
	if a < mad.AttrREQ || a > mad.AttrAPR {
		return nil
	}
	return &c[a-mad.AttrREQ]
}

// lastReason is the highest reject reason of IBTA table 109; higher ones are counted as 0.
const lastReason = 35

// ReasonCounters counts REJs by reason; index it with Of.
type ReasonCounters [lastReason + 1]atomic.Uint64

// Of returns the counter of a reason. Reasons outside the table share the counter of 0.
func (c *ReasonCounters) Of(r verbs.RejectReason) *atomic.Uint64 {
	if r > lastReason {
		r = 0
	}
	return &c[r]
}

// Counters is what a Manager counts. The values only grow, except for the gauges at the end.
type Counters struct {
	Sent     MessageCounters // retransmissions included
	Received MessageCounters // only those that could be parsed

	Retransmits     atomic.Uint64 // messages sent again, because of a timer or a duplicate
	Duplicates      atomic.Uint64 // messages that were received before
	Dropped         atomic.Uint64 // messages for no connection, or not valid in its state
	Malformed       atomic.Uint64 // datagrams that aren't CM MADs
	Overruns        atomic.Uint64 // datagrams lost because too many waited
	Unanswered      atomic.Uint64 // messages from strangers that got no answer, because there were too many
	SendErrors      atomic.Uint64 // datagrams that the device could not send
	RejectsSent     ReasonCounters
	RejectsReceived ReasonCounters

	Connects     atomic.Uint64 // connections established as the active side
	Accepts      atomic.Uint64 // connections established as the passive side
	Disconnects  atomic.Uint64 // established connections that ended
	Unreachable  atomic.Uint64 // attempts that the peer left unanswered, or that could not be sent
	StaleEvicted atomic.Uint64 // connections ended because their peer has restarted
	GaveWay      atomic.Uint64 // half-open connections ended because others needed their places

	Connections atomic.Int64 // in the table now, including TIMEWAIT
	HalfOpen    atomic.Int64 // the passive ones that are not confirmed yet
}
