package metrics

import (
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/fabric/tcp"
)

// TestRemovedListeners: the sum keeps what a removed listener has counted. Prometheus takes a counter that decreases
// for one that was reset, and its whole value for an increase: 7 errors of last year would raise an alert.
func TestRemovedListeners(t *testing.T) {
	s := New()
	var a, b tcp.Counters
	var r rdma.Counters
	removeA, removeR := s.AddTCP(Target, &a), s.AddRDMA(Target, &r)
	s.AddTCP(Target, &b)
	a.DataDigestErrors.Store(5)
	a.In.Bytes.Store(100)
	a.Connections.Store(1)
	b.DataDigestErrors.Store(7)
	b.In.Bytes.Store(1000)
	b.Connections.Store(2)
	r.MemoryWaits.Store(11)
	expect := func(name string, want float64, labels ...string) {
		t.Helper()
		m := value(t, families(t, s), name, append(labels, "role=target")...)
		if n := m.GetCounter().GetValue() + m.GetGauge().GetValue(); n != want {
			t.Errorf("%s: %v, want %v", name, n, want)
		}
	}
	expect("tcp_data_digest_errors_total", 12)
	expect("tcp_connections", 3)
	removeA()
	removeA() // removing again changes nothing
	removeR()
	expect("tcp_data_digest_errors_total", 12)
	expect("tcp_bytes_total", 1100, "direction=received")
	expect("tcp_connections", 2) // a gauge counts only those that exist
	expect("rdma_memory_waits_total", 11)
	expect("rdma_connections", 0)
}
