package rdma

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// Transport specific address subtype of RDMA (NVMe/RDMA, section "Transport Specific Address
// Subtype").
const (
	tsasQPTypeConnected = 1
	tsasProviderRoCEv2  = 4
	tsasCMS             = 1 // RDMA_CM
)

// DiscoveryPort returns the discovery log entry for a listener at addr.
func DiscoveryPort(addr netip.AddrPort) target.Port {
	p := target.Port{Transport: nvme.TransportRDMA, Addr: addr}
	p.TSAS[0], p.TSAS[1], p.TSAS[2] = tsasQPTypeConnected, tsasProviderRoCEv2, tsasCMS
	return p
}
