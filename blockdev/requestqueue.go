package blockdev

// requestQueue is a list, first in, first out, that runs through the requests themselves.
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

// pop is the first; nil where there is none.
func (q *requestQueue) pop() *Request {
	r := q.first
	if r != nil {
		q.first, r.next = r.next, nil
	}
	return r
}

// take gives all of them away.
func (q *requestQueue) take() requestQueue {
	all := *q
	*q = requestQueue{}
	return all
}
