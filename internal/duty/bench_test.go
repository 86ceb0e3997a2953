package duty

import "testing"

type nothing struct{}

func (*nothing) Do()      {}
func (*nothing) Decline() {}

// BenchmarkOffer is what it costs to offer a task and to do it.
func BenchmarkOffer(b *testing.B) {
	h := newHall()
	a := h.attendant(func() {})
	a.Arrive()
	defer a.Leave()
	var t nothing
	b.ReportAllocs()
	for b.Loop() {
		h.offer(&t)
		a.Work()
	}
}
