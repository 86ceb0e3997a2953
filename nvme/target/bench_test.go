package target

import (
	"fmt"
	"testing"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/race"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// repeater submits one command of a bare connection again and again.
type repeater struct {
	q  *fakeConn
	fr *fakeRequest
}

func newRepeater(q *fakeConn, cmd nvme.Command, data []byte, inside bool) *repeater {
	q.bare = true
	fr := q.newRequest()
	fr.Cmd, fr.host = cmd, data
	if inside {
		fr.Cmd.SGL1().SetBlock(nvme.SGLInCapsule, 0, uint32(len(data)))
	} else {
		fr.Cmd.SGL1().SetKeyed(nvme.SGLKeyed, 0x1000, uint32(len(data)), 7)
	}
	return &repeater{q, fr}
}

func (r *repeater) run(t testing.TB) {
	r.fr.answers.Store(0)
	r.q.q.Submit(&r.fr.Request)
	if st := r.fr.cqe.Status(); st != nvme.StatusSuccess {
		t.Fatalf("status %#x", uint16(st))
	}
}

// ioCases are the commands whose cost matters, on a volume of each kind of interface.
func ioCases(t testing.TB, f func(name string, r *repeater)) {
	volumes := map[string]blockdev.Volume{"mem": memVolume(t, 1<<24, 4096), "plain": newTestVolume(1<<24, 4096)}
	for _, name := range []string{"mem", "plain"} {
		tg := newTarget(t, volumes[name])
		for _, c := range []struct {
			name   string
			op     nvme.Opcode
			size   int
			inside bool
		}{
			{"read/4KiB", nvme.OpRead, 4096, false},
			{"write/4KiB/capsule", nvme.OpWrite, 4096, true},
			{"write/4KiB/pull", nvme.OpWrite, 4096, false},
			{"read/128KiB", nvme.OpRead, 128 << 10, false},
			{"write/128KiB/pull", nvme.OpWrite, 128 << 10, false},
		} {
			s := connect(t, tg, testNQN)
			cmd := command(func(cmd *nvme.Command) { cmd.SetIO(c.op, 1, 64, uint32(c.size/4096), 0) })
			r := newRepeater(s.io, cmd, make([]byte, c.size), c.inside)
			f(fmt.Sprintf("%s/%s", name, c.name), r)
			s.io.bare = false
			s.close()
		}
	}
}

// TestNoAllocation: an I/O allocates nothing.
func TestNoAllocation(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	ioCases(t, func(name string, r *repeater) {
		t.Run(name, func(t *testing.T) {
			if v, ok := r.q.q.ctrl.sub.namespace(1).volume.(*testVolume); ok {
				v.log = make([]blockdev.Op, 0, 4096)
			}
			r.run(t)
			if n := testing.AllocsPerRun(1000, func() { r.run(t) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	})
}

func BenchmarkIO(b *testing.B) {
	ioCases(b, func(name string, r *repeater) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(r.fr.host)))
			for b.Loop() {
				r.run(b)
			}
		})
	})
}

// BenchmarkEngine measures the engine itself: a read of a volume that does nothing, with nothing copied.
func BenchmarkEngine(b *testing.B) {
	v, err := blockdev.NewNull(blockdev.Options{Size: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	tg := newTarget(b, v)
	s := connect(b, tg, testNQN)
	cmd := command(func(cmd *nvme.Command) { cmd.SetFlush(1) })
	r := newRepeater(s.io, cmd, nil, false)
	b.ReportAllocs()
	for b.Loop() {
		r.run(b)
	}
	s.io.bare = false
	s.close()
}
