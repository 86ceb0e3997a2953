package blockdev

// Row is several requests that a volume answers one after the other on one goroutine. Whoever
// sends what the answers lead to can gather it, and send it at once behind the last.
type Row struct {
	enders []RowEnder
}

// RowEnder is told that a row is over.
type RowEnder interface {
	EndRow()
}

// AtEnd has e told when the last request of the row was answered. It is called from inside
// Complete, with its request's Row.
func (w *Row) AtEnd(e RowEnder) { w.enders = append(w.enders, e) }

// End tells those who asked for it. The row can be used again.
func (w *Row) End() {
	for i, e := range w.enders {
		w.enders[i] = nil
		e.EndRow()
	}
	w.enders = w.enders[:0]
}
