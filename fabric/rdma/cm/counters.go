package cm

import (
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/cm/mad"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// MessageCounters count by message; index with Of.
type MessageCounters [mad.AttrAPR - mad.AttrREQ + 1]atomic.Uint64

// Of is the counter of a message; nil for an attribute outside the table.
func (c *MessageCounters) Of(a mad.AttributeID) *atomic.Uint64 {
	if a < mad.AttrREQ || a > mad.AttrAPR {
		return nil
	}
	return &c[a-mad.AttrREQ]
}

// lastReason is the highest reject reason of IBTA table 109; higher ones are counted as 0.
const lastReason = 35

// ReasonCounters count REJs by reason; index with Of.
type ReasonCounters [lastReason + 1]atomic.Uint64

// Of is the counter of a reason. Reasons outside the table share the one of 0.
func (c *ReasonCounters) Of(r verbs.RejectReason) *atomic.Uint64 {
	if r > lastReason {
		r = 0
	}
	return &c[r]
}

// Counters are what a Manager counts. They only grow, but for the gauges at the end.
type Counters struct {
	Sent     MessageCounters // retransmissions included
	Received MessageCounters // as far as they could be parsed

	Retransmits     atomic.Uint64 // messages sent again, by timer or for a duplicate
	Duplicates      atomic.Uint64 // messages received again
	Dropped         atomic.Uint64 // messages for no connection, or not for its state
	Malformed       atomic.Uint64 // datagrams that are no CM MAD
	Overruns        atomic.Uint64 // datagrams lost because too many waited
	Unanswered      atomic.Uint64 // messages of strangers that got no answer, because there were too many
	SendErrors      atomic.Uint64 // datagrams that the device could not send
	RejectsSent     ReasonCounters
	RejectsReceived ReasonCounters

	Connects     atomic.Uint64 // connections established as active side
	Accepts      atomic.Uint64 // connections established as passive side
	Disconnects  atomic.Uint64 // established connections that ended
	Unreachable  atomic.Uint64 // attempts that the peer left unanswered, or that could not be sent
	StaleEvicted atomic.Uint64 // connections ended because their peer has begun anew
	GaveWay      atomic.Uint64 // half-open connections ended because others needed their places

	Connections atomic.Int64 // in the table now, TIMEWAIT included
	HalfOpen    atomic.Int64 // of them passive and not confirmed yet
}
