package tcp

import (
	"net/netip"

	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/target"
)

// DiscoveryPort returns the discovery log entry of a listener at addr, without TLS: TSAS is zero
// (NVMe/TCP 1.0, section 3.1.2).
func DiscoveryPort(addr netip.AddrPort) target.Port {
	return target.Port{Transport: nvme.TransportTCP, Addr: addr}
}
