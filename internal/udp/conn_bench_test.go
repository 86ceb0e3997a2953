//go:build linux

package udp

import (
	"fmt"
	"testing"
)

// drain receives until count datagrams came.
func drain(tb testing.TB, c *conn, rx []Received, count int) (bytes int) {
	for count > 0 {
		n, err := c.Recv(rx)
		if err != nil {
			tb.Fatal(err)
		}
		for i := range rx[:n] {
			for d := range rx[i].Datagrams() {
				bytes += len(d)
				count--
			}
		}
	}
	return bytes
}

// BenchmarkBulk sends trains of RoCE packets of 4 KiB payload from a socket to itself: the
// processor's time for both directions, without waiting.
func BenchmarkBulk(b *testing.B) {
	const size, count, trains = 4140, 15, 4
	for _, cfg := range []Config{{}, {DisableCoalescing: true}, {DisableSegmentation: true}} {
		b.Run(configName(cfg), func(b *testing.B) {
			c := listen(b, loop4, cfg)
			whole := trainOf(c.LocalAddr(), pattern(size*count, 1), size)
			var batch []Train
			for range trains {
				batch = append(batch, whole)
			}
			if cfg.DisableSegmentation {
				batch = batch[:0]
				for range trains * count {
					batch = append(batch, trainOf(c.LocalAddr(), pattern(size, 1), size))
				}
			}
			rx := make([]Received, RecvBatch)
			b.SetBytes(size * count * trains)
			b.ReportAllocs()
			for b.Loop() {
				must(c.Send(batch))
				if n := drain(b, c, rx, trains*count); n != trains*size*count {
					b.Fatalf("%d bytes", n)
				}
			}
		})
	}
}

// BenchmarkSmall sends batches of single datagrams from a socket to itself.
func BenchmarkSmall(b *testing.B) {
	for _, batch := range []int{1, 4, 16, 32} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			c := listen(b, loop4, Config{})
			trains := make([]Train, batch)
			for i := range trains {
				trains[i] = trainOf(c.LocalAddr(), make([]byte, 64), 64)
			}
			rx := make([]Received, RecvBatch)
			b.ReportAllocs()
			for b.Loop() {
				must(c.Send(trains))
				drain(b, c, rx, batch)
			}
			b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "datagrams/s")
		})
	}
}

func configName(cfg Config) string {
	switch {
	case cfg.DisableSegmentation:
		return "one by one"
	case cfg.DisableCoalescing:
		return "trains, split on receive"
	}
	return "trains"
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, addr := range []struct{ name, ip string }{{"IPv4", "127.0.0.1"}, {"IPv6", "::1"}} {
		t.Run(addr.name, func(t *testing.T) {
			c := listen(t, mustAddr(addr.ip), Config{})
			trains := []Train{
				trainOf(c.LocalAddr(), pattern(5000, 1), 1000),
				trainOf(c.LocalAddr(), pattern(64, 1), 64),
			}
			trains[1].TrafficClass = 2
			rx := make([]Received, RecvBatch)
			allocs := testing.AllocsPerRun(200, func() {
				must(c.Send(trains))
				drain(t, c, rx, 6)
				must(c.TryRecv(rx))
			})
			if allocs != 0 {
				t.Errorf("%v allocations per round, want 0", allocs)
			}
		})
	}
}
