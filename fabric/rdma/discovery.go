package rdma

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// DiscoveryPort returns the discovery log entry for a listener at addr. provider says which RDMA its RNIC speaks, as the
// nvme.RDMAProvider… constants do: nvme.RDMAProviderRoCE2 for the software RNIC.
func DiscoveryPort(addr netip.AddrPort, provider uint8) target.Port {
	return target.Port{
		Transport: nvme.TransportRDMA, Addr: addr,
		TSAS: nvme.TSASRDMA{QPType: nvme.RDMAQPConnected, Provider: provider, CMS: nvme.RDMACMS}.Bytes(),
	}
}
