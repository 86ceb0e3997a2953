package roce

import "time"

// What a queue pair has out counts in what it shares with others: packets of requests in the window of its path, and what
// READs still bring in another one of that and in the device's room.
//
// Once a queue pair is hushed, what it has out counts for as long as it may take to arrive, and no longer: it is lost, for all
// that is known. Of many queue pairs whose other ends are gone, or whose packets an outage met, it would fill the windows until
// they are given up, while others to the same peer wait. Until it sends again, or hears, such a one is silent.

// sent takes note of n bytes of requests that leave.
func (q *qp) sent(n int) {
	q.req.inflight += n
	if !q.req.silent {
		q.path.window.sent(n)
	}
}

// arrived takes note of n bytes of requests that the peer has.
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

// readsSent, readsHere and readsWithdrawn take note of n bytes of answers that are asked for,
// that are here, and that are given up.
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

// readsSent and readsWithdrawn do so in what is shared, and readsOver in the device's room, where they are here too.
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

// setSilent takes what q has out from the windows, or puts it back. Who may go on then does.
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

// heard takes note that the peer has answered, before what it says is looked at.
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

// outageOver has those on p try again that are hushed: where nothing was heard of any of them, the way was cut.
func (d *Device) outageOver(p *path, now time.Duration) {
	for _, q := range d.qps.all {
		if r := &q.req; q.path == p && q.hushed() && r.deadline != 0 {
			r.againAt, r.deadline = now, now
			d.wakeAt(now)
		}
	}
}
