package cli

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/nvme-anywhere/nvmeof/nvme"
)

// DefaultPort is the port of NVMe over Fabrics, for I/O and discovery (IANA: nvme).
const DefaultPort = 4420

// Endpoint is where a target listens or is reached.
type Endpoint struct {
	Transport nvme.TransportType
	Addr      netip.AddrPort
}

func (e Endpoint) String() string { return fmt.Sprintf("%s://%s", e.Transport, e.Addr) }

// ParseTransport reads the name of a transport that this system has.
func ParseTransport(s string) (nvme.TransportType, error) {
	switch s {
	case "rdma":
		return nvme.TransportRDMA, nil
	case "tcp":
		return nvme.TransportTCP, nil
	case "":
		return 0, fmt.Errorf("no transport given: rdma or tcp")
	}
	return 0, fmt.Errorf("transport %q is not supported: rdma or tcp", s)
}

// ParseEndpoint reads TRANSPORT://ADDRESS[:PORT], as rdma://127.0.0.1:4420 or tcp://[::1].
func ParseEndpoint(s string) (Endpoint, error) {
	name, rest, ok := strings.Cut(s, "://")
	if !ok {
		return Endpoint{}, fmt.Errorf("%q: write it as rdma://ADDRESS:PORT or tcp://ADDRESS:PORT", s)
	}
	t, err := ParseTransport(name)
	if err != nil {
		return Endpoint{}, fmt.Errorf("%q: %w", s, err)
	}
	host, port := rest, ""
	if h, p, err := net.SplitHostPort(rest); err == nil {
		host, port = h, p
	}
	addr, err := ParseAddr(strings.Trim(host, "[]"), port)
	if err != nil {
		return Endpoint{}, fmt.Errorf("%q: %w", s, err)
	}
	return Endpoint{t, addr}, nil
}

// ParseAddr reads an address and a port; the port may be empty for DefaultPort.
func ParseAddr(host, port string) (netip.AddrPort, error) {
	if host == "" {
		return netip.AddrPort{}, fmt.Errorf("no address given, as 127.0.0.1")
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %q is not an IP address", host)
	}
	p := uint64(DefaultPort)
	if port != "" {
		if p, err = strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
			return netip.AddrPort{}, fmt.Errorf("port %q is not a number from 1 to 65535", port)
		}
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), nil
}
