package roce

import (
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"
	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
)

// The local ACK timeout of RDMA is long, half a second when Linux chooses it, because hardware loses nothing. A lost
// last packet would cost that much each time. So the requester tries again earlier, after a few round trips and ever
// more slowly, and the timeout of the queue pair decides only when a retry counts and when the connection is given up.
//
// minEarlyTimeout leaves a peer on a busy machine a few time slices of the scheduler.
const minEarlyTimeout = 20 * time.Millisecond

// ackTimeout returns the local ACK timeout, 0 for none. On a path that is known to take longer it is extended
// accordingly.
func (q *qp) ackTimeout() time.Duration {
	t := wire.AckTimeout(q.attr.Timeout)
	if t == 0 {
		return 0
	}
	return q.path.timeout(t)
}

// restartTimer starts the timeout of the oldest packet anew. While the peer has asked to wait, none is out.
func (q *qp) restartTimer(now time.Duration) {
	r := &q.req
	limit := q.ackTimeout()
	if limit == 0 || r.una == r.next || r.rnrUntil != 0 {
		r.deadline = 0
		return
	}
	if r.backoff == 0 {
		r.timedFrom = now
	}
	r.againAt = now + min(q.earlyTimeout(), limit)
	r.deadline = r.againAt
	if q.hushed() && !r.silent { // for as long as it may take to arrive
		r.deadline = min(r.againAt, now+q.resendHold())
	}
	q.d.wakeAt(r.deadline)
}

const (
	// minProbeTimeout is the least time after which a peer of our kind is asked, with one packet, what it has. On a
	// busy machine the peer may have to wait that long for its turn; what is lost while other packets follow is known
	// without asking.
	minProbeTimeout = 5 * time.Millisecond
	// maxProbes is how often the peer is asked, ever more slowly, until everything is sent again.
	maxProbes = 4
)

// earlyTimeout returns how long an acknowledgement may take until something is sent again.
func (q *qp) earlyTimeout() time.Duration {
	r, p := &q.req, q.path
	switch {
	case !q.selective || p.rtt == 0:
		return p.timeout(minEarlyTimeout) << min(r.backoff, 10)
	case r.backoff >= maxProbes:
		return p.timeout(minEarlyTimeout) << min(r.backoff-maxProbes, 10)
	case r.score != nil: // what is sent again should be here by then
		return q.resendHold() << r.backoff
	}
	return p.timeout(minProbeTimeout) << r.backoff
}

// onTimer does what is due at now.
func (q *qp) onTimer(now time.Duration) {
	r := &q.req
	if r.rnrUntil != 0 && now >= r.rnrUntil {
		r.rnrUntil = 0
		q.d.markReady(q)
	}
	if r.deadline != 0 && now >= r.deadline {
		if now < r.againAt {
			q.setSilent(true)
			r.deadline = r.againAt
		} else {
			q.onTimeout(now)
		}
	}
}

// nextTimer returns when onTimer is due; 0: never.
func (q *qp) nextTimer() time.Duration {
	if q.req.rnrUntil != 0 { // nothing is out
		return q.req.rnrUntil
	}
	return q.req.deadline
}

// onTimeout retries because nothing was heard in time.
func (q *qp) onTimeout(now time.Duration) {
	r := &q.req
	if now-r.progressAt >= q.ackTimeout() {
		q.d.counters.inc(LocalAckTimeoutErr)
		if !q.countRetry(now) {
			return
		}
	} else {
		q.d.counters.inc(EarlyRetransmit)
	}
	r.backoff++
	switch {
	case !q.selective:
		q.silence(now)
		q.goBack()
	case r.backoff <= maxProbes:
		q.probe(now)
	default:
		q.silence(now)
		q.dropped(r.una, now)
	}
	q.setSilent(false) // nothing is out, and what is sent now counts
	q.restartTimer(now)
}

// countRetry counts a retry of the oldest packet, at most one in each ACK timeout without progress: on a path that
// reorders, each packet of the rest of an answer that was given up demands a retry. If there were too many the
// connection ends soon, and false is returned.
func (q *qp) countRetry(now time.Duration) bool {
	r := &q.req
	if now-r.progressAt < q.ackTimeout() {
		return true
	}
	r.progressAt = now
	if r.retries >= int(q.attr.RetryCnt) {
		q.faultLater(verbs.WCRetryExcErr, verbs.EventQPFatal)
		return false
	}
	r.retries++
	return true
}

// retryFrom goes back to psn, which is una, because the peer or a gap in its answers demands it. It ignores the echo of
// a demand that was met, and returns false then.
func (q *qp) retryFrom(psn wire.PSN, now time.Duration) bool {
	r := &q.req
	if psn == r.backPSN && now < r.backHold {
		return false
	}
	if psn == r.backPSN && r.backHold != 0 && !q.countRetry(now) {
		return false
	}
	r.backPSN, r.backHold = psn, now+q.path.roundTrip()
	q.lost(now)
	q.goBack()
	q.restartTimer(now)
	return true
}

// sentAgain records that a packet is sent again.
func (q *qp) sentAgain(now time.Duration) {
	q.req.repeatedAt = now
	q.d.counters.inc(Retransmitted)
}

// lost tells the windows of a loss.
func (q *qp) lost(now time.Duration) {
	if q.req.inflight > 0 {
		q.path.window.lost(now, q.path.roundTrip())
	}
}

// hushed reports whether q may have only the oldest packet out until its peer answers, because nothing was heard in
// time: the peer may be there and its queue pair gone, or the way to it may be cut.
func (q *qp) hushed() bool {
	b := q.req.backoff
	return b > 0 && (!q.selective || b > maxProbes)
}

// silence tells the windows that nothing was heard in time. The window of READs closes too: otherwise a peer that has
// died would keep the room for answers, which all peers share, until it is given up. What counts in no window says
// nothing about it.
func (q *qp) silence(now time.Duration) {
	r, p := &q.req, q.path
	if r.silent {
		return
	}
	if r.inflight > 0 {
		p.window.silent(now, p.roundTrip())
	}
	if r.readBytes > 0 {
		p.reads.silent(now, p.roundTrip())
	}
}

// goBack has everything from una on sent again.
func (q *qp) goBack() {
	r := &q.req
	q.withdrawn(r.inflight)
	q.readsWithdrawn(r.readBytes)
	r.sinceAckReq = 0
	r.sampleAt = 0
	q.seek(r.una)
	q.d.markReady(q)
	q.d.wakeForWindow(q.path)
	q.d.wakeForReads(q.path)
}

// onRNR waits as long as the peer asks, and then goes back to psn, the request that found no
// receive posted.
func (q *qp) onRNR(psn wire.PSN, timer uint8, now time.Duration) {
	r := &q.req
	q.d.counters.inc(RNRNAKRetryErr)
	if r.rnrUntil != 0 {
		return
	}
	const endless = 7
	if q.attr.RNRRetry != endless {
		if r.rnrRetries >= int(q.attr.RNRRetry) {
			q.failAt(psn, verbs.WCRNRRetryExcErr)
			return
		}
		r.rnrRetries++
	}
	if q.selective {
		q.dropped(psn, now)
	} else {
		q.goBack()
	}
	r.deadline = 0
	r.rnrUntil = now + wire.RNRTimer(timer)
	r.progressAt = r.rnrUntil
	q.d.wakeAt(r.rnrUntil)
}
