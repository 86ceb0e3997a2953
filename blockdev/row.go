package blockdev

// Row is a series of requests that a volume answers one after another on one goroutine. What the answers cause to be
// sent can be gathered, and sent together after the last.
type Row struct {
	enders []RowEnder
}

// RowEnder is notified when a row is over.
type RowEnder interface {
	EndRow()
}

// AtEnd makes End call e when the last request of the row has been answered. It is called inside Complete, with its
// request's Row.
func (w *Row) AtEnd(e RowEnder) { w.enders = append(w.enders, e) }

// End calls the RowEnders that asked for it. The row can be used again.
func (w *Row) End() {
	for i, e := range w.enders {
		w.enders[i] = nil
		e.EndRow()
	}
	w.enders = w.enders[:0]
}
