package blockdev

// requestQueue is a first-in, first-out list, linked through the requests themselves.
type requestQueue struct {
	first, last *Request
}

func (q *requestQueue) empty() bool { return q.first == nil }

func (q *requestQueue) push(r *Request) {
	r.next = nil
	if q.first == nil {
		q.first = r
	} else {
		q.last.next = r
	}
	q.last = r
}

// pop removes and returns the first request; nil if there is none.
func (q *requestQueue) pop() *Request {
	r := q.first
	if r != nil {
		q.first, r.next = r.next, nil
	}
	return r
}

// take removes and returns all requests.
func (q *requestQueue) take() requestQueue {
	all := *q
	*q = requestQueue{}
	return all
}

// join adds all requests of another queue, in their order.
func (q *requestQueue) join(more requestQueue) {
	switch {
	case more.empty():
	case q.empty():
		*q = more
	default:
		q.last.next, q.last = more.first, more.last
	}
}
