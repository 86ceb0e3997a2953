package rdma_test

import (
	"net/netip"
	"testing"

	"github.com/nvme-anywhere/nvmeof/fabric/rdma"
	"github.com/nvme-anywhere/nvmeof/nvme"
)

// TestDiscoveryPort: the entry of a listener says which RDMA its RNIC speaks (RDMA_PRTYPE), whichever that is.
func TestDiscoveryPort(t *testing.T) {
	addr := netip.MustParseAddrPort("192.0.2.1:4420")
	for _, provider := range []uint8{nvme.RDMAProviderIB, nvme.RDMAProviderRoCE2, nvme.RDMAProviderIWARP} {
		p := rdma.DiscoveryPort(addr, provider)
		want := nvme.TSASRDMA{QPType: nvme.RDMAQPConnected, Provider: provider, CMS: nvme.RDMACMS}
		e := nvme.DiscoveryEntry{TSAS: p.TSAS}
		if got := e.RDMA(); got != want || p.Addr != addr || p.Transport != nvme.TransportRDMA {
			t.Errorf("%+v at %v, want %+v", got, p.Addr, want)
		}
	}
}
