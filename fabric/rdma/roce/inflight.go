package roce

import "time"

// What a queue pair has in flight counts in limits that it shares with others: packets of requests in the window of its
// path, and outstanding READ data in another window of the path and in the device's room for answers.
//
// Once a queue pair is hushed (only its oldest packet may be in flight, see hushed), what it has in flight counts only
// for as long as it may take to arrive: after that it is presumed lost. Otherwise the packets of many queue pairs whose
// other ends are gone, or that an outage hit, would fill the windows until these are given up, while others to the same
// peer wait. Until it sends again, or hears from the peer, such a queue pair is silent.

// sent counts n bytes of requests that are sent.
func (q *qp) sent(n int) {
	q.req.inflight += n
	if !q.req.silent {
		q.path.window.sent(n)
	}
}

// arrived counts n bytes of requests that have arrived at the peer.
func (q *qp) arrived(n int) {
	q.req.inflight -= n
	q.path.window.acked(n)
}

// withdrawn takes back n bytes of requests that are given up, to be sent again or not at all.
func (q *qp) withdrawn(n int) {
	q.req.inflight -= n
	if !q.req.silent {
		q.path.window.withdrawn(n)
	}
}

// readsSent, readsHere and readsWithdrawn count n bytes of READ data that are requested, that have arrived, and that
// are given up.
func (q *qp) readsSent(n int) {
	q.req.readBytes += n
	if !q.req.silent {
		q.d.readsSent(q.path, n)
	}
}

func (q *qp) readsHere(n int) {
	q.req.readBytes -= n
	q.path.reads.acked(n)
	q.d.readsOver(q.path, n)
}

func (q *qp) readsWithdrawn(n int) {
	q.req.readBytes -= n
	if !q.req.silent {
		q.d.readsWithdrawn(q.path, n)
	}
}

// readsSent and readsWithdrawn do the same for the shared limits; readsOver does it for the device's room only, also
// for data that has arrived.
func (d *Device) readsSent(p *path, n int) {
	if p.reads.inflight == 0 && n > 0 {
		d.readers++
	}
	p.reads.sent(n)
	d.readBytes += n
}

func (d *Device) readsWithdrawn(p *path, n int) {
	p.reads.withdrawn(n)
	d.readsOver(p, n)
}

func (d *Device) readsOver(p *path, n int) {
	d.readBytes -= n
	if p.reads.inflight == 0 && n > 0 {
		d.readers--
	}
}

// setSilent removes what q has in flight from the windows, or puts it back. Queue pairs that have room then continue.
func (q *qp) setSilent(silent bool) {
	d, r, p := q.d, &q.req, q.path
	if r.silent == silent {
		return
	}
	r.silent = silent
	if silent {
		p.window.withdrawn(r.inflight)
		d.readsWithdrawn(p, r.readBytes)
		d.wakeForWindow(p)
		d.wakeForReads(p)
	} else {
		p.window.sent(r.inflight)
		d.readsSent(p, r.readBytes)
	}
}

// heard records that the peer has answered, before the answer is examined.
func (q *qp) heard(now time.Duration) {
	if q.req.silent {
		q.setSilent(false)
	}
	p := q.path
	if now-p.heardAt > p.timeout(minEarlyTimeout) {
		q.d.outageOver(p, now)
	}
	p.heardAt = now
}

// outageOver makes the hushed queue pairs on p try again: if nothing was heard from any of them, the path was cut.
func (d *Device) outageOver(p *path, now time.Duration) {
	for _, q := range d.qps.all {
		if r := &q.req; q.path == p && q.hushed() && r.deadline != 0 {
			r.againAt, r.deadline = now, now
			d.wakeAt(now)
		}
	}
}
