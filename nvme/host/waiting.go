package host

// list is a FIFO list linked through its requests: however many wait, the queue needs no memory for them.
type list struct {
	head, tail *Request
}

func (l *list) empty() bool { return l.head == nil }

func (l *list) push(r *Request) {
	r.next = nil
	if l.tail == nil {
		l.head = r
	} else {
		l.tail.next = r
	}
	l.tail = r
}

// pop removes and returns the first request, or returns nil.
func (l *list) pop() *Request {
	r := l.head
	if r == nil {
		return nil
	}
	l.head = r.next
	if l.head == nil {
		l.tail = nil
	}
	r.next = nil
	return r
}

// remove removes r and reports whether it was there.
func (l *list) remove(r *Request) bool {
	var before *Request
	for w := l.head; w != nil; before, w = w, w.next {
		if w != r {
			continue
		}
		if before == nil {
			l.head = r.next
		} else {
			before.next = r.next
		}
		if l.tail == r {
			l.tail = before
		}
		r.next = nil
		return true
	}
	return false
}
