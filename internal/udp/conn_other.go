//go:build !linux

package udp

import "net/netip"

// Listen returns ErrUnsupported: what the package promises about the IPv4 Identification holds
// on Linux only.
func Listen(addr netip.AddrPort, _ Config) (Conn, error) {
	return nil, &OpError{Op: "listen", Addr: addr, Kind: ErrUnsupported, Remedy: "the software RNIC needs Linux"}
}
