package tcp

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// A command without data in its capsule may be answered, and its slot reused, before its sender
// calls written. That call must not count for the new command.
func TestSlotReusedBeforeWritten(t *testing.T) {
	q := &hostQueue{}
	s := &hostSlot{q: q}
	w := &writer{}
	var read, write host.Request
	read.Cmd.SetIO(nvme.OpRead, 1, 0, 1, 0)
	read.Data = make([]byte, 512)
	s.prepare(&read, 8192)
	s.post(w)
	write.Cmd.SetIO(nvme.OpWrite, 1, 0, 1, 0)
	write.Data = make([]byte, 512)
	s.prepare(&write, 8192)
	s.post(w)
	w.pending[0].written()
	if n := s.sending.Load(); n != 1 {
		t.Fatalf("%d messages refer to the new command's data, want its capsule", n)
	}
	w.pending[1].written()
	if n := s.sending.Load(); n != 0 {
		t.Fatalf("%d messages refer to data that was sent", n)
	}
}
