package target

import (
	"runtime"
	"testing"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestWaitingHoldsNothing: commands that wait for the transport's memory, which is bounded, hold no other memory
// meanwhile. A host may have thousands of them.
func TestWaitingHoldsNothing(t *testing.T) {
	const commands, size = 100, 1 << 20
	host := make([]byte, size)
	for name, of := range map[string]struct {
		conn func(*session) *fakeConn
		cmd  nvme.Command
	}{
		"Get Log Page":       {func(s *session) *fakeConn { return s.admin }, getLog(nvme.GetLogPage{LID: nvme.LogSMART, Length: size})},
		"Identify":           {func(s *session) *fakeConn { return s.admin }, command(func(c *nvme.Command) { c.SetIdentify(nvme.CNSController, 0, 0, 0) })},
		"Reservation Report": {func(s *session) *fakeConn { return s.io }, command(func(c *nvme.Command) { c.SetResvReport(1, size) })},
	} {
		t.Run(name, func(t *testing.T) {
			s := connect(t, newTarget(t, memVolume(t, 1<<20, 4096)), testNQN)
			c := of.conn(s)
			c.allocNever = true
			want := size
			if name == "Identify" {
				want = nvme.PageSize
			}
			before := heapInUse()
			for range commands {
				c.start(of.cmd, host[:want])
			}
			if n := len(c.waiting); n != commands {
				t.Fatalf("%d of %d wait", n, commands)
			}
			if got := heapInUse() - before; got > commands*3<<10 {
				t.Errorf("%d commands that wait hold %d bytes", commands, got)
			}
			s.close()
		})
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
