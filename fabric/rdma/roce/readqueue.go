package roce

import "github.com/nvme-anywhere/nvmeof/fabric/rdma/roce/wire"

// read is a READ request or an atomic on its way: a piece of a work request.
type read struct {
	wqe              uint32
	first, next, end wire.PSN // of the responses
}

// readQueue holds reads in the order of their PSNs.
type readQueue struct {
	ring []read
	head int
	n    int
}

func (q *readQueue) init(limit int) {
	q.ring = make([]read, limit)
	q.clear()
}

func (q *readQueue) empty() bool  { return q.n == 0 }
func (q *readQueue) front() *read { return &q.ring[q.head] }
func (q *readQueue) clear()       { q.head, q.n = 0, 0 }
func (q *readQueue) at(i int) *read {
	return &q.ring[(q.head+i)%len(q.ring)]
}

// full reports whether the queue has no room for a request at psn: as many as are allowed come before it. At least one
// is, as otherwise nothing could be posted that asks.
func (q *readQueue) full(psn wire.PSN) bool {
	return q.n == len(q.ring) && !q.reaches(psn)
}

// reaches reports whether the answers of the last one reach psn.
func (q *readQueue) reaches(psn wire.PSN) bool { return psn.Before(q.at(q.n - 1).end) }

// push adds r, and drops those that are asked for again with it and after it.
func (q *readQueue) push(r read) {
	for q.n > 0 && q.reaches(r.first) {
		q.n--
	}
	q.ring[(q.head+q.n)%len(q.ring)] = r
	q.n++
}

func (q *readQueue) pop() {
	q.head = (q.head + 1) % len(q.ring)
	q.n--
}
