package tcp

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/host"
)

// BenchmarkIO measures both sides over loopback against a volume in memory: the request that
// completes submits itself again, as the load generator does. One operation is one I/O; the
// allocations are those of host and target together.
func BenchmarkIO(b *testing.B) {
	for _, bm := range []struct {
		op    nvme.Opcode
		size  int
		depth int
		o     clientOptions
	}{
		{nvme.OpRead, 4 << 10, 1, clientOptions{}},
		{nvme.OpRead, 4 << 10, 32, clientOptions{}},
		{nvme.OpRead, 4 << 10, 128, clientOptions{}},
		{nvme.OpRead, 4 << 10, 32, clientOptions{host: HostConfig{HeaderDigest: true, DataDigest: true}}},
		{nvme.OpWrite, 4 << 10, 1, clientOptions{}},
		{nvme.OpWrite, 4 << 10, 32, clientOptions{}},
		{nvme.OpWrite, 4 << 10, 32, clientOptions{host: HostConfig{HeaderDigest: true, DataDigest: true}}},
		{nvme.OpRead, 128 << 10, 1, clientOptions{}},
		{nvme.OpRead, 128 << 10, 32, clientOptions{}},
		{nvme.OpWrite, 128 << 10, 1, clientOptions{}},
		{nvme.OpWrite, 128 << 10, 32, clientOptions{}},
	} {
		name := fmt.Sprintf("%s-%dK-depth%d", map[nvme.Opcode]string{nvme.OpRead: "read", nvme.OpWrite: "write"}[bm.op], bm.size>>10, bm.depth)
		if bm.o.host.DataDigest {
			name += "-digests"
		}
		b.Run(name, func(b *testing.B) {
			bm.o.inCapsule, bm.o.noFlow, bm.o.size = 8192, true, 256
			tt := newTestTarget(b, TargetConfig{})
			benchmarkIO(b, newPair(b, tt.Addr(), bm.o), tt, bm.op, bm.size, bm.depth)
		})
	}
}

func benchmarkIO(b *testing.B, p *pair, tt *testTarget, op nvme.Opcode, size, depth int) {
	rs := make([]*host.Request, depth)
	left, running := b.N, 0
	done := make(chan error, depth)
	for i := range rs {
		off := i * size
		r := &host.Request{Cmd: ioCommand(op, off, size), Data: make([]byte, size)}
		one := []*host.Request{r}
		r.Done = func(*host.Request) { // in the reader's goroutine
			if !r.CQE.Status().OK() || r.Err != nil {
				done <- errors.Join(r.Err, r.CQE.Status())
				return
			}
			left--
			if left < 0 {
				done <- nil
				return
			}
			off = (off + depth*size) % (testSize / 2)
			r.Cmd.SetCDW64(10, uint64(off/block))
			p.io.submit(one...)
		}
		rs[i] = r
		running++
	}
	calls := func() (n uint64) {
		for _, c := range []*Counters{p.tr.Counters(), tt.Counters()} {
			n += c.In.Calls.Load() + c.Out.Calls.Load()
		}
		return n
	}
	before, cpu := calls(), processorTime(b)
	b.ReportAllocs()
	b.SetBytes(int64(size))
	b.ResetTimer()
	p.io.submit(rs...)
	for range running {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(processorTime(b)-cpu)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "iops")
	b.ReportMetric(float64(calls()-before)/float64(b.N), "calls/op")
}

// processorTime returns the processor time that this process has used, in nanoseconds. It says more
// than the elapsed time on a machine that does other things too.
func processorTime(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
