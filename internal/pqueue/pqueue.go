// Package pqueue is a priority queue of items of one type: the heap of container/heap, without five methods for each
// type and an interface value for each item. A Queue has no lock of its own.
package pqueue

// Queue holds items and gives access to the first in their order. Use New to make one: the zero value is empty and
// can't be used to add items.
type Queue[T any] struct {
	items  []T // no item is before that at half its index, counted from 1
	before func(a, b T) bool
	moved  func(item T, index int)
}

// New makes a queue ordered by before. moved is called whenever the index of an item, which Fix and Remove take,
// changes, and with -1 when the item has left; it may be nil.
func New[T any](before func(a, b T) bool, moved func(item T, index int)) Queue[T] {
	if moved == nil {
		moved = func(T, int) {}
	}
	return Queue[T]{before: before, moved: moved}
}

// Len returns the number of items.
func (q *Queue[T]) Len() int { return len(q.items) }

// First returns the first item. The queue must not be empty.
func (q *Queue[T]) First() T { return q.items[0] }

// Push adds an item.
func (q *Queue[T]) Push(item T) {
	q.items = append(q.items, item)
	q.up(len(q.items) - 1)
}

// Pop removes and returns the first item.
func (q *Queue[T]) Pop() T { return q.Remove(0) }

// Remove removes and returns the item at index.
func (q *Queue[T]) Remove(index int) T {
	last := len(q.items) - 1
	item, other := q.items[index], q.items[last]
	var none T
	q.items[last] = none
	q.items = q.items[:last]
	if index < last {
		q.items[index] = other
		q.Fix(index)
	}
	q.moved(item, -1)
	return item
}

// Fix moves the item at index to its proper place after its order has changed.
func (q *Queue[T]) Fix(index int) {
	if !q.down(index) {
		q.up(index)
	}
}

// up moves the item at i towards the front as far as it belongs.
func (q *Queue[T]) up(i int) {
	item := q.items[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !q.before(item, q.items[parent]) {
			break
		}
		q.put(i, q.items[parent])
		i = parent
	}
	q.put(i, item)
}

// down moves the item at i away from the front as far as it belongs, and reports whether it moved.
func (q *Queue[T]) down(i int) bool {
	item, start := q.items[i], i
	for {
		child := 2*i + 1
		if child >= len(q.items) {
			break
		}
		if right := child + 1; right < len(q.items) && q.before(q.items[right], q.items[child]) {
			child = right
		}
		if !q.before(q.items[child], item) {
			break
		}
		q.put(i, q.items[child])
		i = child
	}
	if i == start {
		return false
	}
	q.put(i, item)
	return true
}

func (q *Queue[T]) put(i int, item T) {
	q.items[i] = item
	q.moved(item, i)
}
