package roce

import (
	"errors"
	"slices"
	"time"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma/verbs"
	"github.com/nvme-anywhere/nvmeof/internal/udp"
)

// markReady puts q in the line of queue pairs that have something to send.
func (d *Device) markReady(q *qp) {
	if !q.isReady && !q.freed {
		q.isReady = true
		d.ready = append(d.ready, q)
	}
}

// hurry puts q, if it has something to send, at the head of the line.
func (d *Device) hurry(q *qp) {
	if q.isAcking {
		d.markReady(q)
	}
	if !q.isReady || q.freed {
		return
	}
	q.urgent = true
	i := slices.Index(d.ready, q)
	copy(d.ready[1:], d.ready[:i])
	d.ready[0] = q
}

// hurries reports whether q has yet to have the turn that hurry gives it.
func (q *qp) hurries() bool { return q.isReady && q.urgent }

// batchPart is a part of a batch. All queue pairs that are ready add to one part before any adds to the next: so
// packets of one size, which make long trains, are together, whichever queue pairs they belong to.
type batchPart uint8

const (
	bulkPart batchPart = iota // answers, WRITEs up to the first other request, and what the last batch had no room for
	restPart                  // the other requests, and what is behind them
	ackPart                   // ACKs of queue pairs with nothing else to answer: one ends a train, and costs next to nothing
	batchParts
)

// build fills the batch with what is ready, queue pair by queue pair in each part, and reports
// whether there is anything to send. The device's lock is held.
func (d *Device) build(now time.Duration) bool {
	t := d.tx
	t.reset()
	d.emitMADs(t)
	line := d.ready
	d.ready = d.spare[:0]
	reached, cut := len(line), false
	for part := range batchParts {
		for i, q := range line[:reached] {
			full := t.full()
			if part == bulkPart && (full || t.bytes >= bulkBytes) {
				reached, cut = i, full
				break
			}
			if full {
				cut = true
				if part == restPart {
					passOver(line[i:reached])
				}
				break
			}
			q.emit(t, part, now)
		}
	}
	for _, q := range line[:reached] {
		q.req.askAck(t)
		if q.more || cut {
			q.urgent = cut && q.resp.queue.onlyAck() // there was no room behind the others
			d.markReady(q)
		}
	}
	// Those that weren't reached come before those that were and have more.
	left := copy(line, line[reached:])
	clear(line[left:])
	line = append(line[:left], d.ready...)
	d.ready, d.spare = line, d.ready[:0]
	d.counters.add(SentPackets, len(t.packets))
	d.counters.add(SentBytes, t.bytes)
	d.counters.add(StagedBytes, t.staged)
	return len(t.packets) > 0
}

// passOver records that there was no room for the rest of what qps have: there may be none behind the next batch's bulk
// either, so the rest leaves with that bulk.
func passOver(qps []*qp) {
	for _, q := range qps {
		q.passed = q.later
	}
}

// emit adds what q may send now in a part of the batch: answers before requests, but a lone ACK behind them.
func (q *qp) emit(t *txBatch, part batchPart, now time.Duration) {
	urgent := q.urgent
	if part == bulkPart {
		q.isReady, q.urgent, q.more, q.later = false, false, false, false
	}
	if q.path == nil {
		return
	}
	switch part {
	case bulkPart:
		if q.cnpDue {
			q.emitCNP(t)
		}
		if (urgent || !q.resp.queue.onlyAck()) && q.emitResponses(t) == noRoom {
			q.more = true
		}
		if q.attr.State == verbs.RTS {
			q.emitRequests(t, !q.passed, now)
		}
		q.passed = false
	case restPart:
		if q.later {
			q.emitRequests(t, false, now)
		}
	case ackPart:
		switch {
		case !q.resp.queue.onlyAck() || q.fault:
		case q.awaitsRequest():
			q.ackLater()
		default:
			q.emitAck(t)
		}
	}
}

// transmit sends what is ready, at most rounds batches of it. The device's lock is held; it is given up during the
// system call. If another goroutine is sending, transmit returns: that one goes on, or makes sure that somebody does. If
// there are handlers to call then, transmit has them called.
func (d *Device) transmit(rounds int) {
	if d.sending {
		return
	}
	d.sending = true
	for range rounds {
		if d.build(d.now()) {
			d.sendLock.Lock()
			d.mu.Unlock()
			d.send()
			d.sendLock.Unlock()
			d.mu.Lock()
			d.tx.gen++
			d.sent.Broadcast()
			d.noteMissed()
		} else if len(d.faults) == 0 {
			break
		}
		d.applyFaults()
	}
	d.sending = false
	d.sent.Broadcast()
	// Who has the turn looks for both. Nobody calls handlers here: the caller may hold locks that they take.
	if (d.backlog() || d.hasCalls()) && !d.turn {
		d.kick()
	}
}

// noteMissed tells queue pairs which of their packets have missing pages.
func (d *Device) noteMissed() {
	for _, m := range d.tx.missed {
		if !m.q.freed && m.q.attr.State == verbs.RTS {
			m.q.cantRead(m.psn)
		}
	}
}

// quiesce waits until no memory of work requests is being sent. The device's lock is held.
func (d *Device) quiesce() {
	d.sendLock.Lock()
	d.sendLock.Unlock() //nolint:gocritic,staticcheck // waiting is all that is wanted
}

// send hands the batch to the socket, piece by piece. It is called by one goroutine at a time,
// without the device's lock.
func (d *Device) send() {
	t := d.tx
	for next := 0; next < len(t.packets); {
		if d.isNear(t.packets[next].dst) {
			next = d.put(next)
			continue
		}
		next = t.seal(next, d.conn.Segments, d.isNear)
		sent, err := d.sendTrains(t.trains)
		switch {
		case errors.Is(err, udp.ErrSegmentation):
			next = t.firstOf[sent]
		case err != nil:
			return
		}
	}
}

// sendTrains hands trains to the socket. It fails if the socket is closed, or if the train at the returned index has to
// be cut.
func (d *Device) sendTrains(trains []udp.Train) (sent int, err error) {
	d.counters.inc(SendCalls)
	for sent < len(trains) {
		n, err := d.conn.Send(trains[sent:])
		d.counters.add(SentTrains, n)
		sent += n
		switch {
		case err == nil && n > 0:
		case errors.Is(err, udp.ErrSegmentation) && sent < len(trains) && !d.conn.Segments(trains[sent].Dst):
			return sent, err
		case errors.Is(err, udp.ErrClosed):
			return sent, err
		default: // this train can't be sent; its packets count as lost
			d.counters.inc(SendErrors)
			sent++
		}
	}
	return sent, nil
}

// applyFaults moves to ERR the queue pairs that failed while packets were put together.
func (d *Device) applyFaults() {
	for len(d.faults) > 0 {
		q := d.faults[len(d.faults)-1]
		d.faults = d.faults[:len(d.faults)-1]
		if q.fault {
			q.fault = false
			q.toError(q.faultWC, q.faultEvt)
		}
	}
}
